"""Machine: hardware, versions, command and date of a measurement."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGES = ("nanospeech", "torch", "mlx", "onnxruntime", "accelerate", "numpy")


def surroundings(script: str, argv: Sequence[str]) -> dict[str, Any]:
    """Command, hardware, versions and date.

    Args:
        script: the module that was run, scripts.benchmarks.NAME.
        argv: what it was given.
    """
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    command = shlex.join(["python", "-m", script, *argv])
    date = datetime.date.today().isoformat()
    return {"command": command, "hardware": hardware(), "versions": versions, "date": date}


def hardware() -> dict[str, Any]:
    """Processor, cores and memory; a GPU where PyTorch finds one."""
    found: dict[str, Any] = {"cpu": cpu_name(), "cores": os.cpu_count()}
    found["system"] = f"{platform.system()} {platform.machine()}"
    try:
        found["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        pass
    try:
        import torch
    except ImportError:
        return found
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["gpus"] = torch.cuda.device_count()
    return found


def cpu_name() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            pass
    return platform.processor() or platform.machine()
