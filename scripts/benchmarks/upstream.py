"""Times training steps of nanospeech 0.0.6 in an environment of its own; train.py starts it.

    OTHER_PYTHON scripts/benchmarks/upstream.py SPEC.json OUT.json

Runs with that environment's packages and needs nothing of this project. The step is that release's
trainer's: accumulate, autocast, loss, backward, clipping, AdamW, two linear schedules, EMA; without
its progress bar and logging (three waits for the loss a step). Two things are replaced: torchaudio,
which has no build for every torch, and vocos, which needs torchaudio; training uses the first for
the mel spectrogram alone, which the batch has already, and the second not at all.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any


def stub_audio() -> list[str]:
    """Puts empty modules in place of torchaudio and vocos; their names."""
    from torch import nn

    class MelSpectrogram(nn.Module):
        def __init__(self, **settings: Any):
            super().__init__()

    audio, transforms = types.ModuleType("torchaudio"), types.ModuleType("torchaudio.transforms")
    transforms.MelSpectrogram = MelSpectrogram  # type: ignore[attr-defined]
    audio.transforms = transforms  # type: ignore[attr-defined]
    vocos = types.ModuleType("vocos")
    vocos.Vocos = object  # type: ignore[attr-defined]
    sys.modules.update({"torchaudio": audio, "torchaudio.transforms": transforms, "vocos": vocos})
    return ["torchaudio", "vocos"]


def read_batch(spec: dict[str, Any], device: Any) -> tuple[Any, Any, Any]:
    """Mels, lengths and texts on the device."""
    import numpy as np
    import torch

    with np.load(spec["batch_file"]) as file:
        mel, lens, text = (torch.from_numpy(file[k]) for k in ("mel", "lens", "text"))
    mel = mel.to(device, torch.bfloat16 if spec["precision"] == "bf16" else torch.float32)
    return mel, lens.to(device), text.to(device)


def time_steps(step: Callable[[], None], device: Any, steps: int, last: int) -> tuple[float, float]:
    """Seconds a step, by the clock and of the processors, of the last steps."""
    import torch

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(steps - last):
        step()
    wait()
    begin, busy = time.perf_counter(), time.process_time()
    for _ in range(last):
        step()
    wait()
    return (time.perf_counter() - begin) / last, (time.process_time() - busy) / last


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Times the steps of a speech model."""
    import torch

    stubbed = stub_audio()
    from accelerate import Accelerator
    from ema_pytorch import EMA  # type: ignore[import-not-found]
    from torch.optim.lr_scheduler import LinearLR, SequentialLR

    from nanospeech.nanospeech_torch import DiT, Nanospeech

    if spec["threads"]:
        torch.set_num_threads(spec["threads"])
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=spec["cpu"])
    model: Any = Nanospeech(transformer=DiT(**spec["config"]))  # type: ignore[arg-type]
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ema: Any = EMA(model, include_online_model=False)
    ema, model, optimizer = accelerator.prepare(ema, model, optimizer)
    ramps: list[Any] = [
        LinearLR(optimizer, 1e-8, 1.0, 1000),
        LinearLR(optimizer, 1.0, 1e-8, 1_000_000),
    ]
    schedule: Any = accelerator.prepare(SequentialLR(optimizer, ramps, milestones=[1000]))
    half, device = spec["precision"] == "bf16", accelerator.device
    mel, lens, text = read_batch(spec, device)
    model.train()

    def step() -> None:
        with accelerator.accumulate(model):
            cast: Any = contextlib.nullcontext()
            if half:
                cast = torch.autocast(device_type=device.type, dtype=torch.bfloat16)
            with cast:
                loss = model(mel, text=text, lens=lens)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accelerator.unwrap_model(ema).update()

    steps = spec["steps"]
    seconds, busy = time_steps(step, device, steps, min(spec["last"], steps))
    return {
        "status": "ok",
        "seconds_per_step": seconds,
        "cpu_seconds_per_step": busy,
        "frames_per_second": mel.shape[0] * mel.shape[1] / seconds,
        "version": importlib.metadata.version("nanospeech"),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "stubbed": stubbed,
    }


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 2:
        asked = any(word in ("-h", "--help") for word in words)
        print((__doc__ or "").strip(), file=None if asked else sys.stderr)
        return 0 if asked else 2
    spec_file, out_file = words
    # this file's folder and this project must not hide the other release's packages
    here = Path(__file__).resolve().parent
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() not in (here, here.parent)]
    result = run(json.loads(Path(spec_file).read_text(encoding="utf-8")))
    Path(out_file).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
