"""Undo: switches optimisations of inference off one by one, to measure them.

Each function changes an engine, or this process's layers; a benchmark's worker has a process of its
own.
"""

from __future__ import annotations

from typing import Any


def guidance_in_one_call(engine: Any) -> None:
    """Runs the halves of a guided batch one after the other, as upstream does."""
    whole = engine.network

    def network(x: Any, *others: Any) -> Any:
        count = len(x)
        # a time may be one for all; lengths may be left out
        first, second = (
            whole(x[s], *(a[s] if a is not None and len(a) == count else a for a in others))
            for s in (slice(None, count // 2), slice(count // 2, None))
        )
        return engine.concat(first, second)

    engine.network = network


def text_states_once(engine: Any) -> None:
    """Computes the text's states anew at each evaluation."""
    whole, states, given = engine.network, engine.text_states, {}

    def text_states(*arguments: Any, **known: Any) -> Any:
        given["again"] = lambda: states(*arguments, **known)
        return given["again"]()

    def network(*arguments: Any) -> Any:
        given["again"]()
        return whole(*arguments)

    engine.text_states, engine.network = text_states, network


def channels_last(_: Any) -> None:
    """PyTorch's own convolution over (B, C, N)."""
    from torch import nn

    from nanospeech_torch import layers

    layers.Conv1d.forward = lambda self, x_BND: nn.Conv1d.forward(self, x_BND.mT).mT


def single_passes(_: Any) -> None:
    """Norms, gates, rotation and GELU as they are in training, an operation after the other."""
    from nanospeech_torch import inference_cpu, layers

    layers.modulated = lambda norm, x, scale, shift: norm(x) * (1 + scale) + shift
    layers.gated = lambda x, gate, change: x + gate * change
    inference_cpu.speaks = lambda _: False


def attention_written_out(_: Any) -> None:
    """PyTorch's own attention in bfloat16 too."""
    from torch.nn.functional import scaled_dot_product_attention

    from nanospeech_torch import layers

    def attention(q: Any, k: Any, v: Any, mask_BN: Any) -> Any:
        mask = None if mask_BN is None else mask_BN[:, None, None, :]
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    layers.attention = attention


# names for a Cell's `without`, in the order in which they may be taken back; those of a CPU with
# PyTorch alone stand last
UNDO = {
    "guidance in one call": guidance_in_one_call,
    "the text's states once": text_states_once,
    "convolutions with channels last": channels_last,
    "norms, gates, rotation in one pass each": single_passes,
    "attention written out": attention_written_out,
}
TORCH_CPU = tuple(UNDO)[2:]


def undo(names: tuple[str, ...], engine: Any) -> None:
    """Undoes some of UNDO."""
    for name in names:
        UNDO[name](engine)
