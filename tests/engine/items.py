"""Items of unequal lengths as arguments of Engine.sample: together in a batch, and each alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nanospeech.engine.sampling import noise
from nanospeech.text.tokenizer import pad_tokens


@dataclass(frozen=True)
class Items:
    """So many items; an entry of each field for each.

    Args:
        texts: of prompt and new speech.
        lens, prompts: frames in all, and of the prompt.
        prompt_tokens: tokens of the text that are the prompt's.
    """

    texts: Sequence[str]
    lens: Sequence[int]
    prompts: Sequence[int]
    prompt_tokens: Sequence[int]

    def batch(self, engine: Any, mel: np.ndarray) -> dict[str, np.ndarray]:
        """Arguments of sample, padded; prompts are the beginning of a mel (N, 100)."""
        count, frames = len(self.lens), max(self.lens)
        cond = np.zeros((count, frames, 100), np.float32)
        for row, n in zip(cond, self.prompts):
            row[:n] = mel[:n]
        return {
            "noise_BNM": np.stack([noise(frames, 100, seed) for seed in range(count)]),
            "cond_BNM": cond,
            "text_BT": pad_tokens([engine.tokenizer.encode(t) for t in self.texts]),
            "lens_B": np.array(self.lens),
            "prompt_frames_B": np.array(self.prompts),
            "prompt_tokens_B": np.array(self.prompt_tokens),
        }


def alone(batch: dict[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
    """Item i of a batch without any padding."""
    n, text = batch["lens_B"][i], batch["text_BT"][i]
    one = {k: v[i : i + 1] for k, v in batch.items() if k != "lens_B"}
    one["noise_BNM"], one["cond_BNM"] = one["noise_BNM"][:, :n], one["cond_BNM"][:, :n]
    return one | {"text_BT": text[text >= 0][None]}
