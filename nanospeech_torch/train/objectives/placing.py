"""Placing: tokens over patches, where they are not searched for. No network, no losses."""

from __future__ import annotations

import torch
from torch import Tensor

from nanospeech_torch import layers


def patch_means(mel_BNM: Tensor, lens_B: Tensor, p: int) -> Tensor:
    """Mean of the valid frames of each patch: (B, ceil(N / p), M)."""
    patches = -(-mel_BNM.shape[1] // p)
    mel = layers.pad_length(mel_BNM, patches * p).unflatten(1, (patches, p))
    starts = torch.arange(patches, device=lens_B.device) * p
    count = (lens_B[:, None] - starts).clamp(1, p)
    return mel.sum(2) / count[..., None]


def average_path(tokens_B: Tensor, lens_B: Tensor, patches: int) -> Tensor:
    """Token of each patch when every token gets N // T patches and the last ones the remainder."""
    each = (lens_B // tokens_B.clamp(min=1)).clamp(min=1)[:, None]
    first = (tokens_B * (each[:, 0] + 1) - lens_B)[:, None]  # tokens without an extra patch
    place = torch.arange(patches, device=lens_B.device)[None]
    late = first + (place - first * each).div(each + 1, rounding_mode="floor")
    index = torch.where(place < first * each, place // each, late)
    return torch.minimum(index.clamp(min=0), (tokens_B[:, None] - 1).clamp(min=0))


def later(x_BN: Tensor, by_B: Tensor, fill: int) -> Tensor:
    """Rows shifted right by `by`, with `fill` at the start."""
    place = torch.arange(x_BN.shape[1], device=x_BN.device) - by_B[:, None]
    return x_BN.gather(1, place.clamp(min=0)).masked_fill(place < 0, fill)


def tokens_at(text_BT: Tensor, index_BN: Tensor, lens_B: Tensor, before_B: Tensor) -> Tensor:
    """Id of the token of each patch, -1 where there is none: (B, N).

    Args:
        text_BT: ids, -1 past the text.
        index_BN: place in the text of each patch's token.
        lens_B: patches of each item.
        before_B: of them, those of a prompt whose words are not in the text.
    """
    patches = index_BN.shape[1]
    worded = layers.length_mask(lens_B, patches) & ~layers.length_mask(before_B, patches)
    return text_BT.gather(1, index_BN).masked_fill(~worded, -1)


def earlier(x_BNM: Tensor, by_B: Tensor) -> Tensor:
    """Rows shifted left by `by`; the last element is repeated."""
    place = torch.arange(x_BNM.shape[1], device=x_BNM.device) + by_B[:, None]
    place = place.clamp(max=x_BNM.shape[1] - 1)
    return x_BNM.gather(1, place[..., None].expand_as(x_BNM))


def duration_loss(log_BT: Tensor, durations_BT: Tensor, real_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Sum and count of the Poisson deviance, up to a constant.

    It is least at the mean duration, so totals are right; squared error of logs is least at the
    geometric mean, which gives hurried speech.
    """
    lasts, guess = durations_BT.float(), log_BT.float().clamp(max=7)
    miss = guess.exp() - lasts - lasts * (guess - lasts.clamp(min=1).log())
    return miss.masked_fill(~real_BT, 0).sum(), real_BT.sum()
