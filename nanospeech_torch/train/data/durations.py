"""Durations: samples of speech to batches for a duration model. No model.

What a sample is, how it is decoded and who its prompt is are speech.py's.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch

from nanospeech.errors import NanospeechError
from nanospeech.text.tokenizer import pad_tokens

from .batch import DurationBatch
from .heard import quiet_start, stretched
from .speech import SpeechBatches

STRETCH = 0.15  # log of the largest factor of speed on a pair


class DurationBatches(SpeechBatches):
    """The same for a duration model: a prompt and all the text, prepared as at inference.

    The silence before the second clip's first sound goes to the prompt, which ends in silence at
    inference too. A pair may be heard faster or slower, for readers whose pace is not in the data.
    """

    @property
    def untranscribed(self) -> bool:
        return False

    def finished(self, item: dict, skipped: Counter) -> dict | None:
        """The item with its token ids, how many are the prompt's, and how long that is."""
        rng = self.rng(item, item["epoch"])
        frames, seam, wordless = len(item["mel"]), item.get("seam"), item.get("wordless", 0)
        try:
            if seam is None or wordless:
                said, ids = (), self.encode(item["text"], rng)
            else:
                first, second = map(self.readable, item["texts"])
                stop = "." if first[-1:].isalnum() else ""  # as make_prompt ends a prompt
                said = self.ids(f"{self.edge}{first}{stop} ", rng)
                ids = np.concatenate([said, self.ids(second + self.edge, rng)])
        except NanospeechError:
            skipped["unusable text"] += 1
            return None
        if not len(said) < len(ids) <= (frames - wordless) // 2:
            skipped["more text than sound"] += 1
            return None
        prompt = seam or max(1, round(frames * rng.uniform(0.1, 0.9)))
        if seam is not None:
            prompt = seam + quiet_start(item["mel"][seam:])
        pace = np.exp(rng.uniform(-STRETCH, STRETCH)) if rng.random() < 0.5 else 1.0
        longest = frames * pace > self.plan.max_duration
        pace = 1.0 if longest or len(ids) > (frames * pace - wordless) // 2 - 1 else pace
        heard = stretched(item["mel"][:prompt], pace)
        total = max(1, round((frames - prompt) * pace)) + (0 if wordless else len(heard))
        return {**item, "ids": ids, "rng": rng, "known": len(said), "heard": heard, "total": total}

    def collate(
        self, group: list[dict], epoch: int, skipped: Counter
    ) -> tuple[DurationBatch | None, list[str]]:
        """Pads a group of items to the longest prompt and text, or where shapes are to be few to
        those of the group's bucket; the sound after the prompts is left out."""
        ready = [i if "rng" in i else self.decoded_now(i, epoch, skipped) for i in group]
        items = [i for i in ready if i is not None]
        if not items:
            return None, []
        text = pad_tokens([i["ids"] for i in items])
        length, width = max(len(i["heard"]) for i in items), text.shape[1]
        if self.plan.carry:
            longest = max(max(i["total"], len(i["heard"])) for i in items)
            length = self.plan.padded(self.plan.bucket(longest))
            width = next(w for w in self.plan.text_widths(length) if w >= width)
        mel = np.zeros((len(items), length, self.audio.n_mels), np.float32)
        for row, item in zip(mel, items):
            row[: len(item["heard"])] = item["heard"]
        batch = DurationBatch(
            mel=torch.from_numpy(mel),
            lens=torch.tensor([i["total"] for i in items]),
            text=torch.from_numpy(
                np.pad(text, ((0, 0), (0, width - text.shape[1])), constant_values=-1)
            ),
            prompt=torch.tensor([len(i["heard"]) for i in items]),
            known=torch.tensor([i["known"] for i in items]),
        )
        return batch, [i["text"] for i in items]
