"""Launch: compares the processes of a run with those asked for. Starts none."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import torch

from nanospeech_torch.engine import has_bfloat16

# variables in which launchers put the number of processes
SIZES = (("WORLD_SIZE", "WORLD_SIZE"), ("OMPI_COMM_WORLD_SIZE", "mpirun"), ("PMI_SIZE", "mpirun"))
ANCESTORS = 4  # ancestors that are searched for a launcher


def report(world: int, device: torch.device) -> str:
    """One line: the processes that run, those asked for, and the command that starts as many.

    Args:
        world: processes of the run.
        device: of this one.
    """
    wanted, by = asked()
    runs = f"{world} process runs" if world == 1 else f"{world} processes run"
    here = torch.cuda.device_count() if device.type == "cuda" else 0
    if wanted is None and world == 1:
        if here > 1:
            return f"{runs}, on one of {here} GPUs; this uses all: {command(here)}"
        return f"{runs}; this starts more: {command('N')}"
    if wanted is None:
        return runs
    if wanted == world:
        return f"{runs}, {wanted} asked for ({by})"
    return f"{runs}, but {wanted} were asked for ({by}); this starts {wanted}: {command(wanted)}"


def slow_precision(precision: str, device: torch.device) -> str | None:
    """What to do where bfloat16 is slower than float32; None where it is not.

    A processor without instructions for it converts every operand: a training step of the default
    model took 4.4 s of one core of a Xeon with AVX-512 alone, and 1.5 s in float32.
    """
    if precision != "bf16" or device.type != "cpu" or has_bfloat16():
        return None
    return (
        "this processor has no bfloat16 instructions: float32 trains about three times as fast; "
        "set mixed_precision=no"
    )


def asked() -> tuple[int | None, str]:
    """The number of processes that the launcher was asked for, if known, and its name."""
    for name, by in SIZES:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name]), by
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "")
    if "SLURM_PROCID" in os.environ and tasks.isdigit() and int(tasks) > 1:
        return int(tasks), "srun, whose tasks do not know of each other without torchrun"
    for line in launchers():
        if found := re.search(r"--num[-_]processes[= ](\d+)", line):
            why = ", which starts one with --cpu" if re.search(r" --cpu( |$)", line) else ""
            return int(found[1]), "accelerate launch" + why
    return None, ""


def launchers() -> list[str]:
    """Command lines of `accelerate launch` among the processes that this one descends from."""
    try:
        import psutil  # comes with accelerate

        above = psutil.Process().parents()[:ANCESTORS]
        lines = [" ".join(process.cmdline()) for process in above]
    except Exception:  # not installed, or not allowed to look
        return []
    return [line for line in lines if re.search(r"accelerate(\.commands\.launch|\S* launch)", line)]


def command(processes: int | str) -> str:
    """The command that starts this program in so many processes."""
    words = ["torchrun", "--nproc_per_node", str(processes)]
    program = sys.argv[0] if sys.argv else ""
    if not program or program == "-c":
        return shlex.join([*words, "SCRIPT.py"])
    given = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]  # python's own arguments
    module = ["-m", given[-1]] if given[-2:-1] == ["-m"] else [program]
    if Path(program).stem == "nanospeech":  # the installed command, which on Windows is no script
        module = ["-m", "nanospeech"]
    return shlex.join([*words, *module, *sys.argv[1:]])
