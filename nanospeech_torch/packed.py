"""Packed: attention over items of different lengths without a mask, for GPUs. Knows no model.

Flash attention takes no mask of keys. Here a batch is one row of B * N positions with two segments
for
each item: its valid positions and its padding, each attending only to itself. Segment borders are
tensors on the device and shapes do not change, so there is no host synchronisation, and compiled
blocks and CUDA graphs serve all lengths.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

WIDEST = 256  # of heads that flash attention supports


@functools.cache
def known() -> bool:
    """Whether this torch has varlen attention; the check imports torch's compiler."""
    try:
        import torch.nn.attention.varlen  # noqa: F401
    except ImportError:  # before torch 2.10: attention is masked
        return False
    return True


def attention_dtype(like: Tensor) -> torch.dtype:
    """The type in which attention computes: autocast's, else the array's own."""
    device = like.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return like.dtype


def usable(like: Tensor, dim_head: int) -> bool:
    """Whether flash attention takes segments here, for heads of this width.

    It needs torch 2.10, an NVIDIA GPU of Ampere's generation or later, and bfloat16 or float16.
    torch.backends.cuda.enable_flash_sdp(False) switches it off.
    """
    cuda = torch.backends.cuda
    return (
        like.device.type == "cuda"
        and torch.version.hip is None
        and cuda.flash_sdp_enabled()
        and cuda.is_flash_attention_available()
        and torch.cuda.get_device_capability(like.device) >= (8, 0)
        and fits(attention_dtype(like), dim_head)
        and known()
    )


def fits(dtype: torch.dtype, dim_head: int) -> bool:
    """Whether flash attention supports a type and a width of heads."""
    return dtype in (torch.bfloat16, torch.float16) and dim_head % 8 == 0 and dim_head <= WIDEST


def segments(mask_BN: Tensor) -> Tensor:
    """Where the segments of a batch begin, and where the last one ends: int32 (2 B + 1,).

    Args:
        mask_BN: true in the valid positions of each item.
    """
    batch, places = mask_BN.shape
    starts = torch.arange(batch + 1, device=mask_BN.device, dtype=torch.int32) * places
    ends = starts[:-1] + mask_BN.sum(1, dtype=torch.int32)
    return torch.cat([torch.stack([starts[:-1], ends], 1).flatten(), starts[-1:]])


def attention(q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, cuts: Tensor) -> Tensor:
    """Softmax attention within each segment; the output of padding is meaningless.

    Args:
        cuts: of `segments`.
    """
    from torch.nn.attention.varlen import varlen_attn

    batch, _, places, _ = v_BHNE.shape
    dtype = attention_dtype(v_BHNE)
    q, k, v = (x.to(dtype).transpose(1, 2).flatten(0, 1) for x in (q_BHNE, k_BHNE, v_BHNE))
    out = varlen_attn(q, k, v, cuts, cuts, places, places)
    assert isinstance(out, Tensor)
    return out.unflatten(0, (batch, places)).transpose(1, 2)
