"""Several nodes: two launches on loopback, by hand and by slurm.sh, train one model."""

from __future__ import annotations

import csv
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nanospeech_torch.train.scale.launch import asked, command, report, slow_precision
from tests.forked import free_port
from tests.training import write_shards

ROOT = Path(__file__).parents[2]
TRAIN = str(ROOT / "scripts" / "train.py")
CONFIG = """
run_dir: {folder}/run
data: {{shards: [{folder}/*.tar], tokenizer: phonemes, batch_size: 1, max_duration: 200}}
dit: {{dim: 32, depth: 1, heads: 2, dim_head: 16, text_dim: 32, conv_layers: 1, dropout: 0.0}}
optimizer: {{lr: 1.0e-3}}
train: {{log_every: 1, buckets: 1, export: last}}
total_steps: 3
warmup_steps: 1
"""

# what is not there without SLURM: it starts a command on "nodes", names them and signals them
STUBS = {
    "srun": """
while [ "$1" != bash ]; do case "$1" in --nodes=*) nodes=${1#*=};; esac; shift; done
for ((i = 0; i < nodes; i++)); do
  SLURM_NODEID=$i "$@" > "$STUB/node$i.log" 2>&1 & echo $! >> "$STUB/nodes"
done
code=0; for pid in $(cat "$STUB/nodes"); do wait "$pid" || code=$?; done; exit $code
""",
    "scontrol": """
case "$1" in
  show) printf '127.0.0.1\\n127.0.0.1\\n';;
  requeue) echo "$2" > "$STUB/requeued";;
esac
""",
    "scancel": """
[ "$1" = --signal=USR1 ] && kill -USR1 $(cat "$STUB/nodes")
""",
}


@pytest.fixture
def config(tmp_path) -> Path:
    write_shards(tmp_path, 2)
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(folder=tmp_path))
    return path


def environment(**more: str) -> dict[str, str]:
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **settings, **more}


def rows(folder: Path) -> list[dict[str, str]]:
    """The lines of log.csv."""
    path = folder / "run" / "log.csv"
    return list(csv.DictReader(path.open())) if path.exists() else []


def final(folder: Path) -> dict:
    """The last whole weights of a run."""
    path = sorted((folder / "run").glob("step_*.pt"))[-1]
    return torch.load(path, weights_only=True)


def check_nodes(outputs: list[str]) -> None:
    """Each node knows of both; only the first has the progress bar."""
    assert sum("2 x cpu" in output for output in outputs) == 1  # said once, by the first
    assert ["step/s" in output for output in outputs] == [True, False]


@pytest.mark.slow  # by SLURM, below, two nodes are launched as well
def test_two_launches_by_hand_train_one_sharded_model(config, tmp_path):
    port = str(free_port())
    nodes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
                *("--node_rank", str(rank), "--nproc_per_node", "1"),
                *("--master_addr", "127.0.0.1", "--master_port", port),
                *(TRAIN, "--config", str(config), "--set", "parallel.shard=2"),
            ],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [node.communicate(timeout=240)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    check_nodes(outputs)
    assert [row["step"] for row in rows(tmp_path)] == ["1", "2", "3"]
    assert final(tmp_path)["run"]["parallel"]["shard"] == 2


# in a trainer's place: it tells of its start and end, and goes on until it is signalled
TRAINER = """
import os, signal, sys, time

def tell(*words):
    with open(os.environ["STUB"] + "/rank" + os.environ["RANK"], "a") as f:
        print(*words, file=f)

def save(*_):
    tell("saved")
    sys.exit()

signal.signal(signal.SIGTERM, save)
names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
tell(*(os.environ[name] for name in names), *sys.argv[1:])
while True:
    time.sleep(60)
"""


def slurm(tmp_path: Path, *arguments: str, **more: str) -> subprocess.Popen:
    """slurm.sh in a job of two nodes, whose logs are node0.log and node1.log."""
    stubs = tmp_path / "bin"
    stubs.mkdir()
    for name, text in STUBS.items():
        (stubs / name).write_text(f"#!/usr/bin/env bash{text}")
        (stubs / name).chmod(0o755)
    return subprocess.Popen(
        ["bash", "scripts/recipes/slurm.sh", *arguments],
        cwd=ROOT,
        env=environment(
            PATH=f"{stubs}:{os.environ['PATH']}",
            STUB=str(tmp_path),
            SLURM_JOB_ID="7",
            SLURM_JOB_NUM_NODES="2",
            SLURM_JOB_NODELIST="node[1-2]",
            SLURM_SUBMIT_DIR=str(ROOT),
            PYTHON=sys.executable,
            PROCESSES="1",
            **{"MASTER_PORT": str(free_port()), **more},
        ),
    )


def signalled(job: subprocess.Popen, folder: Path, ready: Callable[[], object]) -> list[str]:
    """What the nodes have said when a job ends, which is signalled as soon as it is ready."""
    while not ready() and job.poll() is None:
        time.sleep(0.2)
    job.send_signal(signal.SIGUSR1)  # what SLURM sends before the time limit
    code = job.wait(timeout=240)
    said = [(folder / f"node{rank}.log").read_text() for rank in range(2)]
    assert code == 0, said
    assert (folder / "requeued").read_text() == "7\n"
    return said


def test_slurm_script_starts_one_run_on_all_nodes_and_has_it_save_in_time(tmp_path):
    """By torchrun, which goes on until the trainers have ended."""
    trainer, port = tmp_path / "trainer", str(free_port())
    trainer.write_text(f"#!{sys.executable} -IS\n{TRAINER}")
    trainer.chmod(0o755)
    files = [tmp_path / f"rank{rank}" for rank in range(2)]
    given = ("--config", "a file.yaml", "--set", "total_steps=9")
    job = slurm(tmp_path, *given, PYTHON_EXEC=str(trainer), MASTER_PORT=port)
    signalled(job, tmp_path, lambda: all(f.exists() and f.read_text() for f in files))
    begun = " ".join(("2 1 127.0.0.1", port, "-u -m nanospeech.train", *given))
    assert [f.read_text() for f in files] == [f"{begun}\nsaved\n"] * 2


@pytest.mark.slow  # its parts are tested apart: above, and by signals to several processes
def test_slurm_script_trains_on_all_nodes_saves_in_time_and_asks_for_more(config, tmp_path):
    job = slurm(
        *(tmp_path, "--config", str(config)),
        *("--set", "total_steps=1000000", "data.workers=2"),
    )
    check_nodes(signalled(job, tmp_path, lambda: rows(tmp_path)))
    assert final(tmp_path)["step"] == int(rows(tmp_path)[-1]["step"]) > 0


@pytest.mark.slow
def test_a_run_says_how_many_processes_were_asked_for_and_what_starts_them(config, tmp_path):
    asked = [*("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no")]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", *asked]
    wish = [TRAIN, "--config", str(config), "--set", "total_steps=1", "log.name=a b"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run([*launch, *wish], env=environment(), **pipes)
    assert done.returncode == 0, done.stdout
    missing = (
        "1 process runs, but 2 were asked for (accelerate launch, which starts one with --cpu)"
    )
    (line,) = (line for line in done.stdout.splitlines() if missing in line)
    command = shlex.split(line.partition("this starts 2: ")[2])
    assert command == ["torchrun", "--nproc_per_node", "2", *wish]


def test_bfloat16_is_advised_against_where_a_processor_lacks_it(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True})
    assert "mixed_precision=no" in (slow_precision("bf16", cpu) or "")
    assert slow_precision("no", cpu) is None
    assert slow_precision("bf16", torch.device("cuda")) is None
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    assert slow_precision("bf16", cpu) is None


def test_what_was_asked_for_is_read_from_the_launcher(monkeypatch):
    for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    cpu = torch.device("cpu")
    assert asked() == (None, "")
    assert report(1, cpu).startswith(
        "1 process runs; this starts more: torchrun --nproc_per_node N"
    )
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert asked() == (None, "")  # a shell within a job, not one of its tasks
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert report(1, cpu).startswith("1 process runs, but 4 were asked for (srun, whose tasks")
    monkeypatch.setenv("WORLD_SIZE", "8")  # of one torchrun a task
    assert report(8, cpu) == "8 processes run, 8 asked for (WORLD_SIZE)"
    module = ["python", "-X", "dev", "-m", "a.b", "--steps", "3"]
    monkeypatch.setattr(sys, "orig_argv", module)
    monkeypatch.setattr(sys, "argv", ["/x/a/b.py", "--steps", "3"])
    assert command(2) == "torchrun --nproc_per_node 2 -m a.b --steps 3"
    monkeypatch.setattr(sys, "orig_argv", ["python", "/x/bin/nanospeech", "train", "82M"])
    monkeypatch.setattr(sys, "argv", ["/x/bin/nanospeech", "train", "82M"])
    assert command(2) == "torchrun --nproc_per_node 2 -m nanospeech train 82M"
