"""Alignment: nanospeech.engine.alignment's monotonic search in torch, without host synchronisation.

On GPUs with Triton it is one kernel; elsewhere a loop over frames, vectorised over batch and
tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


@functools.cache
def kernel(device: str) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None:
    """The search as one kernel, for this type of device; None without Triton 3.2."""
    if device != "cuda":
        return None
    try:
        import triton.language as tl  # type: ignore

        from .alignment_triton import fused_search
    except ImportError:
        return None
    return fused_search if hasattr(tl, "gather") else None


@torch.no_grad()
def monotonic_search(
    score_BNT: Tensor, frames_B: Tensor, tokens_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Frames of each token on the best path, and the token of each frame.

    The same paths as nanospeech.engine.alignment.monotonic_search, also where scores tie.

    Args:
        score_BNT: how well frame n fits token t.
        frames_B: int, valid frames of each item; at least tokens_B of them.
        tokens_B: int, valid tokens of each item, at least 1.

    Returns:
        int64 (B, T) frames per token, 0 past tokens_B, summing to frames_B; and int64 (B, N) the
        token of each frame, the last token past frames_B.
    """
    found = kernel(score_BNT.device.type) or stepwise_search
    return found(score_BNT, frames_B, tokens_B)


def stepwise_search(score_BNT: Tensor, frames_B: Tensor, tokens_B: Tensor) -> tuple[Tensor, Tensor]:
    """As monotonic_search, some operations for each frame."""
    batch, frames, tokens = score_BNT.shape
    score = score_BNT.float().transpose(0, 1)
    # best[n, b, t + 1] is the best path's score at frame n and token t; one column ahead of token 0
    best = F.pad(torch.empty_like(score, memory_format=torch.contiguous_format), (1, 0))
    best.fill_(-torch.inf)
    best[0, :, 1] = score[0, :, 0]
    rows = list(best.unbind(0))
    gains = score.unbind(0)
    for n in range(1, frames):
        reached = rows[n][:, 1:]
        torch.maximum(rows[n - 1][:, :-1], rows[n - 1][:, 1:], out=reached)
        reached.add_(gains[n])
    place = torch.arange(frames, device=score.device)
    inside = place[:, None] < frames_B
    moved = (best[:-1, :, :-1] > best[:-1, :, 1:]) & inside[1:, :, None]
    token = (tokens_B.long() - 1)[:, None]
    path = [token]
    for step in reversed(moved.to(torch.uint8).unbind(0)):
        token = token - step.gather(1, token)
        path.append(token)
    index = torch.cat(path[::-1], dim=1)
    durations = torch.zeros(batch, tokens, dtype=torch.long, device=score.device)
    return durations.scatter_add_(1, index, inside.t().long()), index
