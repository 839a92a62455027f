"""The training guide's road, in small: recordings, scripts of one's own, a folder that speaks.

The scripts import and call what the published guide's do; only the sizes are small.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from accelerate.state import AcceleratorState
from datasets import Dataset
from safetensors.torch import save_file

from convert.__main__ import main as convert
from nanospeech.commands.prepare import main as prepare
from nanospeech.generate import main as generate
from nanospeech.release.folder import open_release
from nanospeech.text.tokenizer import Tokenizer
from nanospeech_torch.train.config import read_run
from nanospeech_torch.train.data.speech import BatchPlan
from nanospeech_torch.train.run import build_objective
from tests.training import samples, trainer

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parents[1] / "fixtures"
REFERENCE = FIXTURES / "ljspeech" / "wavs" / "LJ001-0008.wav"
SAID = "has never been surpassed."

SCRIPT = """
import sys
from functools import partial

from datasets import load_dataset
from torch.optim import AdamW

from nanospeech.nanospeech_torch import (
    SAMPLES_PER_SECOND, DiT, DurationPredictor, DurationTransformer, Nanospeech,
    list_str_to_vocab_tensor,
)
from nanospeech.trainer_torch import DurationTrainer, NanospeechTrainer


def go(kind, steps):
    with open("vocab.txt") as file:
        places = {token: place for place, token in enumerate(file.read().splitlines())}
    reader = partial(list_str_to_vocab_tensor, vocab=places)
    sizes = dict(dim=64, heads=1, text_dim=32, ff_mult=2, text_num_embeds=len(places))
    if kind == "speech":
        network = DiT(depth=2, conv_layers=1, **sizes)
        model, trainer = Nanospeech(transformer=network, tokenizer=reader), NanospeechTrainer
    else:
        network = DurationTransformer(depth=1, conv_layers=2, **sizes)
        model, trainer = DurationPredictor(transformer=network, tokenizer=reader), DurationTrainer
    longest = int(10 * SAMPLES_PER_SECOND)
    trainer(
        model,
        AdamW(model.parameters(), lr=1e-4),
        num_warmup_steps=1000,
        accelerate_kwargs={"mixed_precision": "bf16", "log_with": "wandb"},
    ).train(
        load_dataset("webdataset", data_files="shards/*.tar", split="train", streaming=True),
        steps,
        batch_size=2,
        max_batch_frames=2 * longest,
        max_duration=longest,
        num_workers=8,
        save_step=1,
    )


go(sys.argv[1], int(sys.argv[2]))
"""


def run_here(arguments: list[str]) -> None:
    """Runs the script in this process, as if nothing had used Accelerate in it before."""
    old, sys.argv = sys.argv, ["script.py", *arguments]
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        runpy.run_path("script.py", run_name="__main__")
    finally:
        sys.argv = old
        AcceleratorState._reset_state(reset_partial_state=True)


def checkpoint(path: Path) -> dict:
    """A trainer's file, as anyone may read it."""
    return torch.load(path, map_location="cpu")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder with recordings, vocabulary, shards and both models after two steps."""
    folder = tmp_path_factory.mktemp("workshop")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("WANDB_MODE", "disabled")  # for those who have it
        shutil.copytree(FIXTURES / "libritts", "extracted")
        assert prepare(["vocab", "extracted"]) == 0
        assert prepare(["mp3", "extracted", "--jobs", "1"]) == 0
        assert prepare(["shards", "extracted", "--out", "shards", "--jobs", "1"]) == 0
        Path("script.py").write_text(SCRIPT)
        run_here(["speech", "2"])
        run_here(["duration", "2"])
        yield folder


@pytest.fixture(scope="module")
def plain(workshop, vocoder_file) -> Path:
    """A folder of weights alone, as a helper of one's own would write them: no config.json."""
    folder = workshop / "plain"
    folder.mkdir()
    for run, name in (("nanospeech", "model"), ("duration", "duration")):
        state = checkpoint(workshop / "runs" / run / "step_00000002.pt")["model_state_dict"]
        save_file(state, folder / f"{name}.safetensors")
    shutil.copy(workshop / "vocab.txt", folder)
    shutil.copy(vocoder_file, folder)
    return folder


def speak(folder: Path) -> np.ndarray:
    """What a release folder says in the reference's voice."""
    output = folder.parent / f"{folder.name}.wav"
    flags = ["--ref-audio", str(REFERENCE), "--ref-text", SAID, "--steps", "2", "--seed", "1"]
    flags += ["--backend", "torch", "--device", "cpu", "--quiet", "--output", str(output)]
    assert generate(["--model", str(folder), "--text", "We will forget.", *flags]) == 0
    wave, rate = soundfile.read(output)
    assert rate == 24_000 and np.isfinite(wave).all()
    return wave


def test_a_run_leaves_checkpoints_that_anyone_can_read(workshop):
    parts = {"nanospeech": {"transformer"}, "duration": {"to_pred", "transformer"}}
    for run, prefixes in parts.items():
        names = sorted(p.name for p in (workshop / "runs" / run).glob("*.pt"))
        assert names == ["step_00000001.pt", "step_00000002.pt"]
        state = checkpoint(workshop / "runs" / run / names[-1])
        assert {k.split(".")[0] for k in state["model_state_dict"]} == prefixes


def test_weights_alone_tell_their_sizes(plain, workshop):
    config = open_release(plain).config
    characters = len((workshop / "vocab.txt").read_text().splitlines())
    assert (config.dit.depth, config.dit.heads, config.dit.conv_layers) == (2, 1, 1)
    assert config.duration is not None
    assert (config.duration.depth, config.duration.conv_layers) == (1, 2)
    assert config.dit.text_num_embeds == config.duration.text_num_embeds == characters


def test_converted_folder_speaks_as_the_weights_alone_do(plain, workshop, vocoder_file):
    model, duration = (
        str(workshop / "runs" / run / "step_00000002.pt") for run in ("nanospeech", "duration")
    )
    arguments = [model, "--duration", duration, "--vocoder", str(vocoder_file)]
    arguments += ["--weights", "raw", "--dtype", "float32", "--output", str(workshop / "mine")]
    assert convert(arguments) == 0
    spoken = speak(workshop / "mine")
    assert len(spoken) > 2400
    assert np.array_equal(spoken, speak(plain))


@pytest.mark.slow
def test_two_processes_go_on_where_one_stopped(workshop):
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    launch += ["--num_processes", "2", "script.py", "speech", "3"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "going on from" in done.stdout and "at step 2" in done.stdout
    assert len(list((workshop / "runs/nanospeech/step_00000003").glob("rank_*.json"))) == 2


@pytest.mark.parametrize("kind", ["list", "dataset"])
def test_workers_share_what_is_no_stream(tmp_path, kind):
    rows = [{**s, "mp3": s["mp3"]["bytes"]} for s in samples()]
    data = Dataset.from_list(rows) if kind == "dataset" else rows
    loader = trainer(tmp_path).loader(data, BatchPlan(1, 400, 400), 2, 0)
    epoch = takewhile(lambda loaded: loaded.place.epoch == 0, loader)
    texts = [text for loaded in epoch for text in loaded.texts]
    assert len(texts) == len(set(texts)) >= len(rows) - 1


@pytest.mark.parametrize(("name", "millions"), [("82M", 82.3), ("duration", 22.4)])
def test_configs_of_the_guide_build_its_models(name, millions):
    path = ROOT / "nanospeech" / "configs" / f"{name}.yaml"
    config = read_run(path)
    assert config.data.batch_size == 112
    with torch.device("meta"):
        model = build_objective(config, Tokenizer("chars", [chr(i) for i in range(33, 83)]))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.1)
