"""Monotonic search as one kernel, a program for each item; see alignment.py. Needs Triton.

The best scores of a frame stay on the chip. Only back pointers are stored: a byte for each frame
and token, whether the path came from the token before.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore
import triton.language as tl  # type: ignore
from torch import Tensor

NARROWEST = 128  # tokens that a program works on at least: one for each of its threads
WARPS = 4


@triton.jit(do_not_specialize=["frames", "tokens"])
def search_kernel(
    score_BNT,
    frames_B,
    tokens_B,
    moved_BNT,
    durations_BT,
    index_BN,
    frames,
    tokens,
    WIDTH: tl.constexpr,  # a power of two, at least `tokens`
):
    item = tl.program_id(0).to(tl.int64)
    score = score_BNT + item * frames * tokens
    moved = moved_BNT + item * frames * tokens
    count = tl.load(frames_B + item)
    last = (tl.load(tokens_B + item) - 1).to(tl.int32)
    place = tl.arange(0, WIDTH)
    real = place < tokens
    before = tl.maximum(place - 1, 0)
    lowest = float("-inf")
    best = tl.where(place == 0, tl.load(score), lowest)
    gain = tl.load(score + tl.minimum(1, frames - 1) * tokens + place, mask=real, other=0.0)
    for n in range(1, frames):
        # prefetch the next frame's scores while this one's are added
        next_row = tl.minimum(n + 1, frames - 1) * tokens
        ahead = tl.load(score + next_row + place, mask=real, other=0.0)
        shifted = tl.where(place == 0, lowest, tl.gather(best, before, 0))
        came = shifted > best
        tl.store(moved + n * tokens + place, came.to(tl.int8), mask=real)
        best = tl.where(came | (shifted != shifted), shifted, best) + gain
        gain = ahead
    tl.debug_barrier()  # all of `moved` is written before any of it is read
    token = last
    spoken = place * 0
    for k in range(0, frames):
        n = frames - 1 - k
        inside = n < count
        tl.store(index_BN + item * frames + n, token.to(tl.int64))
        spoken += ((place == token) & inside).to(tl.int32)
        step = tl.load(moved + n * tokens + token, mask=inside, other=0)
        token -= step.to(tl.int32)
    tl.store(durations_BT + item * tokens + place, spoken.to(tl.int64), mask=real)


def fused_search(score_BNT: Tensor, frames_B: Tensor, tokens_B: Tensor) -> tuple[Tensor, Tensor]:
    """As alignment.monotonic_search, in one launch."""
    batch, frames, tokens = score_BNT.shape
    score = score_BNT.float().contiguous()
    moved = torch.empty(score.shape, dtype=torch.int8, device=score.device)
    durations = torch.empty(batch, tokens, dtype=torch.long, device=score.device)
    index = torch.empty(batch, frames, dtype=torch.long, device=score.device)
    kernel: Any = search_kernel
    kernel[(batch,)](
        score,
        frames_B,
        tokens_B,
        moved,
        durations,
        index,
        frames,
        tokens,
        WIDTH=max(NARROWEST, triton.next_power_of_2(tokens)),
        num_warps=WARPS,
    )
    return durations, index
