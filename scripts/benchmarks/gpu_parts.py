"""What gpu.py measures beside training steps, one part in this process.

python -m scripts.benchmarks.gpu_parts correctness OUT.json [--tiny] [--cpu]
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nanospeech_torch import layers, packed
from nanospeech_torch.train.objectives import alignment as search

from .gpu import ALIGNED, TINY
from .model import random_release
from .worker import Spec, build, make_batch

TEXT = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background."
RECIPE = """
model: speech
dit: {dim: 64, depth: 2, heads: 2, dim_head: 32, text_dim: 32, conv_layers: 1}
vocoder: {dim: 32, intermediate_dim: 64, num_layers: 1}
"""


def seconds(call: Callable[[], Any], device: str, times: int) -> float:
    """Mean of some calls, after two that are not timed."""
    for n in range(times + 2):
        if n == 2:
            wait(device)
            begin = time.perf_counter()
        call()
    wait(device)
    return (time.perf_counter() - begin) / times


def wait(device: str) -> None:
    """Waits for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def loss_and_gradient(model: Any, batch: Any, half: bool = False) -> tuple[float, Tensor]:
    """The summed losses of a batch and all gradients in a row, on the host."""
    model.zero_grad()
    with torch.autocast(batch.mel.device.type, torch.bfloat16, enabled=half):
        sums = model(batch)
    loss = torch.stack([s / n for s, n in sums.values()]).sum()
    loss.backward()
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return loss.item(), torch.cat(grads).float().cpu()


def apart(one: tuple[float, Tensor], other: tuple[float, Tensor]) -> dict[str, float]:
    """Relative differences of two losses and of two gradients."""
    loss = abs(one[0] - other[0]) / abs(one[0])
    return {"loss": loss, "gradient": ((one[1] - other[1]).norm() / one[1].norm()).item()}


def correctness(device: str, tiny: bool) -> dict[str, Any]:
    """A tiny model on the CPU and on the device; masked and not; as a graph and not."""
    from nanospeech_torch.train.scale.speed import SpeedConfig, apply_speed

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    spec = Spec(config={**TINY, **ALIGNED, "dropout": 0.0, "text_num_embeds": 64}, batch=4)
    spec.frames, spec.tokens, spec.shortest = 96, 16, 0.5
    model = build(spec, meta=False)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)  # nothing starts at zero
    batch = make_batch(spec, 64, 100, 0)
    there, batch_there = copy.deepcopy(model).to(device), batch.to(device)
    on_cpu, on_device = loss_and_gradient(model, batch), loss_and_gradient(there, batch_there)
    found: dict[str, Any] = {"CPU against device": apart(on_cpu, on_device)}
    half = loss_and_gradient(there, batch_there, True)
    torch.backends.cuda.enable_flash_sdp(False)
    found["segments against mask, bf16"] = apart(loss_and_gradient(there, batch_there, True), half)
    torch.backends.cuda.enable_flash_sdp(True)
    found["segments used"] = packed.usable(torch.zeros(1, device=device).bfloat16(), 32)
    if device == "cuda" or not tiny:
        one = copy.deepcopy(model).to(device)
        apply_speed(one, SpeedConfig("reduce-overhead"))
        for _ in range(3):  # the third replays what the second has recorded
            torch.compiler.cudagraph_mark_step_begin()
            replayed = loss_and_gradient(one, batch_there)
        found["graph against eager"] = apart(on_device, replayed)
    return found


def searching(device: str, tiny: bool) -> dict[str, Any]:
    """Seconds of the alignment's search, in a loop and as one kernel, and whether they agree."""
    batch, frames, tokens = (2, 40, 10) if tiny else (32, 937, 160)
    score = torch.randn(batch, frames, tokens, device=device)
    lens = torch.full((batch,), frames, device=device), torch.full((batch,), tokens, device=device)
    loop = seconds(lambda: search.stepwise_search(score, *lens), device, 3)
    found = {"shape": [batch, frames, tokens], "loop": loop, "kernel": None}
    if (kernel := search.kernel(device)) is not None:
        found["kernel"] = seconds(lambda: kernel(score, *lens), device, 20)
        pairs = zip(kernel(score, *lens), search.stepwise_search(score, *lens))
        found["same"] = all(torch.equal(a, b) for a, b in pairs)
    return found


def attending(device: str, tiny: bool) -> dict[str, Any]:
    """Seconds of attention forward and backward: masked, in segments, without either."""
    shapes = (
        [(2, 2, 48, 32)] if tiny else [(32, 12, 937, 64), (112, 12, 937, 64), (16, 10, 1875, 128)]
    )
    kind, rows = torch.float32 if device == "cpu" else torch.bfloat16, []
    for batch, heads, places, width in shapes:
        q, k, v = (
            torch.randn(batch, heads, places, width, device=device, dtype=kind, requires_grad=True)
            for _ in range(3)
        )
        lens = torch.linspace(0.6 * places, places, batch, device=device).long()
        mask = layers.length_mask(lens, places)
        given: dict[str, Tensor | None] = {"masked": mask, "plain": None}
        if packed.usable(v, width):
            given["segments"] = packed.segments(mask)

        def step(seen: Tensor | None, q: Tensor = q, k: Tensor = k, v: Tensor = v) -> None:
            layers.attention(q, k, v, seen).sum().backward()

        row = {name: seconds(lambda s=s: step(s), device, 5) for name, s in given.items()}
        rows.append({"shape": [batch, heads, places, width], "seconds": row})
    return {"rows": rows}


def speaking(device: str, tiny: bool) -> dict[str, Any]:
    """Real-time factor of speaking a text: seconds of work for each of speech."""
    from nanospeech import Speaker, load_engine

    rows = {}
    with tempfile.TemporaryDirectory() as place:
        recipe = Path(place, "tiny.yaml")
        recipe.write_text(RECIPE, encoding="utf-8")
        folder = random_release(str(recipe) if tiny else "82M", Path(place, "release"))
        for name in ("eager",) if tiny and device == "cpu" else ("eager", "compiled"):
            engine = load_engine(folder, "torch", device, compile=name == "compiled")
            speaker = Speaker(engine)
            spoken = speaker.speak(TEXT)
            took = seconds(lambda s=speaker: s.speak(TEXT), device, 1 if tiny else 3)
            length = len(spoken.wave) / spoken.sample_rate
            rows[name] = {"rtf": took / length, "seconds": took, "speech": length}
    if device == "cuda":
        rows["peak_memory"] = torch.cuda.max_memory_allocated()
    return rows


PARTS: dict[str, Callable[[str, bool], dict[str, Any]]] = {
    "correctness": correctness,
    "search": searching,
    "attention": attending,
    "speaking": speaking,
}


def main(argv: list[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.gpu_parts", description=__doc__
    )
    made.add_argument("part", choices=PARTS)
    made.add_argument("out")
    made.add_argument("--tiny", action="store_true")
    made.add_argument("--cpu", action="store_true")
    args = made.parse_args(argv)
    device = "cpu" if args.cpu or not torch.cuda.is_available() else "cuda"
    found = PARTS[args.part](device, args.tiny)
    Path(args.out).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
