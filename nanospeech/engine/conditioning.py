"""Conditioning: how long texts last and where their tokens lie. Samples nothing.

Token ids become states of patches, whose durations are searched in a recording or predicted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.folder import DURATION

from . import checks
from .alignment import frame_tokens
from .hooks import Device, Hooks
from .upsampling import (
    PACE,
    average_durations,
    planned_durations,
    predicted_patches,
    searched_durations,
    total_seconds,
)


class Conditioning(Hooks):
    """What a text and a prompt make of each other, before anything is sampled."""

    embedded: tuple[Any, Any, Device] = (None, None, None)  # a network, token ids and their states

    @property
    def aligned(self) -> bool:
        """Whether the model knows the length of each token."""
        return self.config.dit.text_upsampling == "aligned"

    @property
    def has_duration(self) -> bool:
        """Whether duration() works: an aligned model, or a folder with a duration model."""
        return self.aligned or self.has_duration_model

    @property
    def has_duration_model(self) -> bool:
        """Whether the folder has a duration model."""
        return self.has(DURATION)

    def duration(
        self,
        cond_BNM: np.ndarray,
        text_BT: np.ndarray,
        *,
        lens_B: np.ndarray | None = None,
        prompt_tokens_B: np.ndarray | None = None,
        own: bool = False,
    ) -> np.ndarray:
        """Total seconds of prompt and new speech.

        By the folder's duration model, or without one by an aligned model's token durations.

        Args:
            cond_BNM: log mel of the prompt; N may be 0.
            text_BT: int64 token ids of prompt and new text, padded with -1.
            lens_B: frames of each prompt; None counts those before the first all-zero one.
            prompt_tokens_B: tokens that belong to the prompt; 0 where none of its words is there.
            own: use an aligned model's token durations even where the folder has a duration model.

        Returns:
            float32 (B,). Where durations of tokens are predicted (all but duration models with
            pooling "mean"): the prompt and those of the new tokens; without prompt_tokens_B those
            of all tokens, and no less than the prompt.

        Raises:
            InputError: shapes that do not fit together, ids outside the vocabulary, or an item
                without any.
            CheckpointError: the model has no durations.
        """
        if not self.has_duration:
            raise CheckpointError(
                f"{self.folder} has no {DURATION} and its model no durations of its own; give the"
                " length, or add a duration model to the folder"
            )
        if own and not self.aligned:
            raise CheckpointError(
                f"the model in {self.folder} has no durations of its own: it was trained with"
                f" text_upsampling {self.config.dit.text_upsampling!r}, not 'aligned'"
            )
        cond = checks.mels(cond_BNM, "cond_BNM", self.config)
        text = checks.text(text_BT, len(cond), self.config)
        checks.some_text((text >= 0).sum(1))
        lens = checks.prompt_lengths(lens_B, cond)
        tokens = checks.prompt_tokens(prompt_tokens_B, text, lens)
        frame = 1 / self.config.audio.frame_rate
        with self.context():
            if own or not self.has_duration_model:
                each, pace = self.own_seconds(text, cond, lens), PACE
            else:
                head = self.module(DURATION)
                mel = np.where(checks.length_mask(lens, cond.shape[1])[..., None], cond, 0)
                heard = self.array(mel), self.array(text), self.array(lens)
                if head.transformer.config.pooling == "mean":
                    spoken = np.where(tokens == 0, lens * frame, 0)  # not by the text
                    return (self.numpy(head(*heard)) + spoken).astype(np.float32)
                each, pace = self.numpy(head.token_seconds(*heard)), head.transformer.config.pace
        each = np.where(text >= 0, each, 0)
        items = zip(each, tokens, lens * frame)
        return np.array([total_seconds(w, k, n, pace) for w, k, n in items], np.float32)

    def own_seconds(
        self, text_BT: np.ndarray, cond_BNM: np.ndarray, prompt_B: np.ndarray
    ) -> np.ndarray:
        """Seconds of each token (B, T), as an aligned model predicts them."""
        speaker = self.speaker(self.normalised(cond_BNM), prompt_B)
        guesses = self.numpy(self.dit.aligner.log_durations(self.token_states(text_BT), speaker))
        frame = 1 / self.config.audio.frame_rate
        return predicted_patches(guesses) * self.config.dit.patch_size * frame

    def align(self, mel_NM: np.ndarray, text_T: np.ndarray) -> np.ndarray:
        """Frames of each token in a recording, by monotonic search (arXiv 2005.11129).

        Args:
            mel_NM: float32 log mel of the recording.
            text_T: int64 ids of what it says.

        Returns:
            int64 (T,), summing to N. Word times are its cumulative sum / 93.75 seconds.

        Raises:
            InputError: fewer patches than tokens, or shapes that do not fit.
            CheckpointError: the model is not an aligned one.
        """
        if not self.aligned:
            raise CheckpointError(
                f"the model in {self.folder} cannot align: it was trained with text_upsampling"
                f" {self.config.dit.text_upsampling!r}, not 'aligned'"
            )
        mel = checks.mel(mel_NM, "mel_NM", self.config)
        text = checks.words(text_T, self.config)
        p, frames = self.config.dit.patch_size, mel.shape[1]
        if -(-frames // p) < text.shape[1]:
            raise InputError(
                f"{text.shape[1]} tokens cannot be found in {frames} frames; {p} frames a token"
                " are needed at least: is this the text of this recording?"
            )
        lens = np.array([frames])
        with self.context():
            normal = self.normalised(mel)
            means = self.dit.token_means(self.array(text), self.speaker(normal, lens))
            means_TM = self.numpy(means)[0]
        patches = searched_durations(normal[0], means_TM, p)
        return np.diff(np.minimum(np.cumsum(patches) * p, frames), prepend=0)

    def normalised(self, cond_BNM: np.ndarray) -> np.ndarray:
        """Log mel to the ODE's units; frames without condition stay zero."""
        audio = self.config.audio
        there = np.any(cond_BNM != 0, axis=-1, keepdims=True)
        scaled = (cond_BNM - audio.mel_mean) / audio.mel_std
        return np.where(there, scaled, 0).astype(np.float32)

    def text_states(
        self,
        text_BT: np.ndarray,
        cond_BNM: np.ndarray,
        lens_B: np.ndarray,
        prompt_B: np.ndarray | None = None,
        prompt_tokens_B: np.ndarray | None = None,
    ) -> tuple[Device, Device]:
        """States of each patch with the text and without: 2 x (B, N', D).

        A prompt of whose tokens there are 0 has the states without text, if the model is aligned.
        """
        kind, p = self.config.dit.text_upsampling, self.config.dit.patch_size
        prompt = checks.leading_frames(cond_BNM) if prompt_B is None else prompt_B
        tokens = checks.prompt_tokens(prompt_tokens_B, text_BT, prompt)
        patches, patch_lens = -(-cond_BNM.shape[1] // p), -(-lens_B // p)
        text = self.array(text_BT)
        if kind == "none":
            mask = self.array(checks.length_mask(patch_lens, patches))
            return (
                self.dit.embed_text(text, patches, mask),
                self.dit.embed_text(text * 0 - 1, patches, mask, text),
            )
        count = (text_BT >= 0).sum(1)
        checks.some_text(count)
        hidden, wordless = self.token_states(text_BT), count * 0
        if kind == "average":
            durations = average_durations(count, patch_lens, text_BT.shape[1], p)
        else:
            wordless = np.where(tokens == 0, -(-prompt // p), 0)
            normal = self.normalised(cond_BNM)
            speaker = self.speaker(normal, prompt)
            means = self.numpy(self.dit.token_means(text, speaker))
            log_durations = self.dit.aligner.log_durations(hidden, speaker)
            durations = planned_durations(
                normal,
                means,
                predicted_patches(self.numpy(log_durations)),
                count,
                patch_lens,
                prompt,
                tokens,
                p,
            )
        place = np.arange(patches) - wordless[:, None]
        index = np.take_along_axis(frame_tokens(durations, patches), np.maximum(place, 0), 1)
        states = self.layers.gather_tokens(hidden, self.array(index))
        filler = states * 0 + self.dit.embed_filler(text)
        if wordless.any():
            spoken = self.array((place >= 0)[..., None].astype(np.float32))
            states = states * spoken + filler * (1 - spoken)
        return states, filler

    def token_states(self, text_BT: np.ndarray) -> Device:
        """Text states of each token (B, T, text_dim); the last ones are kept, as a chunk's length
        and its speech are computed from the same.
        """
        dit, key = self.dit, (text_BT.shape, text_BT.tobytes())
        whose, what, states = self.embedded
        if whose is not dit or what != key:
            states = dit.embed_tokens(self.array(text_BT))
            self.ready(states)  # another thread may take them: two cannot compute one lazy array
            self.embedded = dit, key, states
        return states

    def speaker(self, normal_BNM: np.ndarray, prompt_B: np.ndarray) -> Device:
        """What the aligner knows of the prompts' speakers: (B, M)."""
        return self.array(checks.speakers(normal_BNM, prompt_B, self.config.dit.patch_size))
