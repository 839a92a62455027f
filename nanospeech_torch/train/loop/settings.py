"""Settings: a run's settings as nested plain values, their differences, a tokenizer's tokens."""

from __future__ import annotations

from typing import Any

from nanospeech.config import VocoderConfig, current_names
from nanospeech_torch.train.objectives.vocoder_gan import VocoderLossConfig

# settings that may change on resume without a notice
FREE = ("run_dir", "save_step", "log.", "data.workers", "train.log_every")


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names."""
    if not isinstance(values, dict):
        return {prefix.rstrip("."): values}
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.")
    return found


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Differences between two configs, one line each, without FREE settings."""
    kinds = {"vocoder": VocoderConfig, "vocoder_loss": VocoderLossConfig}
    present = {
        k: current_names(kinds[k], v, f"the checkpoint's {k}") if k in kinds and v else v
        for k, v in old.items()
    }
    a, b = flat(present), flat(new)
    lines = []
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name) and not name.startswith(FREE):
            was, now = (repr(x[name]) if name in x else "absent" for x in (a, b))
            lines.append(f"{name} was {was}, is {now}")
    return lines


def vocab_of(tokenizer: Any) -> list[str]:
    """The tokens of a tokenizer, or of a function with `vocab` bound to it; [] if it has none."""
    if hasattr(tokenizer, "vocab"):
        return list(tokenizer.vocab)
    return list(getattr(tokenizer, "keywords", {}).get("vocab", {}))
