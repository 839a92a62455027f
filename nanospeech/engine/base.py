"""Engine: a loaded model, NumPy in and out. What all backends share; knows no array library.

A backend adds a handful of hooks (the last section of Engine) and its own network modules.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.folder import DURATION, MODEL, VOCODER, Release
from nanospeech.text.tokenizer import Tokenizer

from . import checks
from .alignment import frame_tokens
from .compiled import FewLengths
from .sampling import best_scale, guide, integrate, time_grid
from .upsampling import (
    PACE,
    average_durations,
    planned_durations,
    predicted_patches,
    searched_durations,
    total_seconds,
)

DTYPES = ("float32", "float16", "bfloat16")
# Parts of the speech model that are always float32: they determine durations, which must not depend
# on rounding, and cost next to nothing.
EXACT = ("text_embed.", "aligner.")
Device = Any  # an array of the backend


class Engine(ABC):
    """A model on a device.

    Mels at this seam are natural log mels. A frame of a condition that is exactly zero in every
    band is no condition. The ODE's state is in normalised units, (log_mel - mel_mean) / mel_std,
    which are log mels for the published weights.

    Attributes:
        backend: "torch" or "mlx".
        config: the release's ModelConfig.
        tokenizer: text to ids.
        folder: the release folder.
        device: the device's name.
        dtype: of the speech model's transformer; text, ODE's state and time are float32 always.
    """

    backend: str
    layers: Any  # the backend's layers module
    compiler: type[FewLengths]

    def __init__(self, release: Release, device: str, dtype: str | None, compiles: bool = False):
        self.release = release
        self.config: ModelConfig = release.config
        self.tokenizer: Tokenizer = release.tokenizer
        self.folder: Path = release.folder
        self.device = device
        self.dtype = dtype or self.usual_dtype(device)
        self.compiles = compiles
        self.modules: dict[str, Any] = {}
        self.voice_engines: dict[Path | None, Engine] = {None: self}
        with self.context():
            self.set_network(self.load(MODEL))

    def set_network(self, dit: Any) -> None:
        """Makes this the network that samples, compiled if the engine compiles."""
        self.dit = dit
        self.compiled = self.compiler(dit) if self.compiles else None

    def with_voice(self, weights: Path | None) -> Engine:
        """The engine of a voice with weights of its own; they share all but the network.

        Args:
            weights: a Voice's; None gives the engine of the model as it is.

        Raises:
            CheckpointError: the file is damaged, or of another model.
        """
        if weights not in self.voice_engines:
            other = copy.copy(self)
            other.release = dataclasses.replace(self.release, voice=weights)
            with self.context():
                other.set_network(other.load(MODEL))
            self.voice_engines[weights] = other
        return self.voice_engines[weights]

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
        return self.release.has(DURATION)

    def velocity(
        self,
        x_BNM: np.ndarray,
        cond_BNM: np.ndarray,
        text_BT: np.ndarray,
        time_B: np.ndarray,
        *,
        lens_B: np.ndarray | None = None,
        drop_audio: bool = False,
        drop_text: bool = False,
    ) -> np.ndarray:
        """The network alone: dx/dt at one time.

        Args:
            x_BNM: float32 state of the ODE, in normalised units.
            cond_BNM: log mel of the prompt, zero past it.
            text_BT: int64 token ids of prompt and new text, padded with -1.
            time_B: float32 times in [0, 1].
            lens_B: frames of each item (prompt and new speech), or None for N.
            drop_audio: leave the condition out (for guidance).
            drop_text: leave the text out.

        Returns:
            float32 (B, N, M) in normalised units, zero past lens_B. An aligned model spreads the
            text by its predicted durations, scaled to the frames.

        Raises:
            InputError: shapes that do not fit together, or ids outside the vocabulary.
        """
        x = checks.mels(x_BNM, "x_BNM", self.config)
        cond = checks.mels(cond_BNM, "cond_BNM", self.config, like=x)
        text = checks.text(text_BT, len(x), self.config)
        time = checks.times(time_B, len(x))
        lens = checks.lengths(lens_B, "lens_B", len(x), x.shape[1])
        with self.context():
            states, filler = self.text_states(text, cond, lens)
            normal = np.zeros_like(cond) if drop_audio else self.normalised(cond)
            v = self.network(
                self.array(x),
                self.array(normal),
                filler if drop_text else states,
                self.array(time),
                None if lens_B is None else self.array(lens),
            )
            return self.numpy(v)

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
            prompt_tokens_B: tokens that belong to the prompt.
            own: use an aligned model's token durations even where the folder has a duration model.

        Returns:
            float32 (B,). Where durations of tokens are predicted (all but duration models with
            pooling "mean"): the prompt and those of the new tokens; without prompt_tokens_B those
            of all tokens, and no less than the prompt.

        Raises:
            InputError: shapes that do not fit together, or ids outside the vocabulary.
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
        lens = checks.prompt_lengths(lens_B, cond)
        tokens = checks.prompt_tokens(prompt_tokens_B, text, lens)
        frame = 1 / self.config.audio.frame_rate
        with self.context():
            ids = self.array(text)
            if own or not self.has_duration_model:
                hidden = self.dit.embed_tokens(ids)
                _, guesses = self.token_guesses(ids, hidden, self.normalised(cond), lens)
                each = predicted_patches(guesses) * self.config.dit.patch_size * frame
                pace = PACE
            else:
                head = self.module(DURATION)
                mel = np.where(checks.length_mask(lens, cond.shape[1])[..., None], cond, 0)
                heard = self.array(mel), ids, self.array(lens)
                if head.transformer.config.pooling == "mean":
                    return self.numpy(head(*heard))
                each, pace = self.numpy(head.token_seconds(*heard)), head.transformer.config.pace
        each = np.where(text >= 0, each, 0)
        items = zip(each, tokens, lens * frame)
        return np.array([total_seconds(w, k, n, pace) for w, k, n in items], np.float32)

    def sample(
        self,
        noise_BNM: np.ndarray,
        cond_BNM: np.ndarray,
        text_BT: np.ndarray,
        options: SampleOptions = SampleOptions(),
        *,
        lens_B: np.ndarray | None = None,
        prompt_frames_B: np.ndarray | None = None,
        prompt_tokens_B: np.ndarray | None = None,
        on_step: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Solves the ODE from noise to speech.

        Args:
            noise_BNM: float32 standard normal, see nanospeech.engine.sampling.noise.
            cond_BNM: log mel of the prompt, zero past it.
            text_BT: int64 token ids of prompt and new text, padded with -1.
            options: solver, grid and guidance (arXiv 2207.12598); a cfg_strength or temperature
                of None is the model's own.
            lens_B: total frames of each item (prompt and new speech), or None for N.
            prompt_frames_B: frames of each prompt; None counts those before the first all-zero
                one. Aligned models use it, and cfg-zero.
            prompt_tokens_B: tokens that belong to the prompt. An aligned model finds
                these in the prompt by search and scales the new ones to the remaining frames;
                without it, it scales all.
            on_step: called as on_step(done, steps) after each step; it may raise.

        Returns:
            float32 (B, N, M): the last state as log mel, the prompt's part included; without
            meaning past lens_B.

        Raises:
            InputError: shapes that do not fit together, ids outside the vocabulary, or fewer
                frames than the text needs.
        """
        x = checks.mels(noise_BNM, "noise_BNM", self.config)
        cond = checks.mels(cond_BNM, "cond_BNM", self.config, like=x)
        text = checks.text(text_BT, len(x), self.config)
        lens = checks.lengths(lens_B, "lens_B", len(x), x.shape[1])
        prompt = checks.lengths(prompt_frames_B, "prompt_frames_B", len(x), x.shape[1], cond)
        tokens = checks.prompt_tokens(prompt_tokens_B, text, prompt)
        with self.context():
            # cast once: every evaluation reads them
            made = self.text_states(text, cond, lens, prompt, tokens)
            states, filler = (self.to_weights(s) for s in made)
            normal = self.to_weights(self.array(self.normalised(cond)))
            frames = None if lens_B is None else self.array(lens)
            fresh = checks.length_mask(lens, x.shape[1]) & ~checks.length_mask(prompt, x.shape[1])
            velocity = self.guided(options, (normal, states, frames), filler, fresh)
            times = time_grid(options.steps, options.schedule, options.sway_sampling_coef)
            spread = self.config.chosen(options, "temperature")
            state = self.array(x * np.float32(spread))
            steps = integrate(velocity, state, times, options.method, options.zero_init)
            for done, state in enumerate(steps, start=1):
                self.ready(state)
                if on_step is not None:
                    on_step(done, options.steps)
            audio = self.config.audio
            return self.numpy(state) * audio.mel_std + audio.mel_mean

    def guided(
        self,
        options: SampleOptions,
        conditions: tuple[Device, Device, Device | None],
        filler_BND: Device,
        fresh_BN: np.ndarray,
    ) -> Callable[[float, Device], Device]:
        """The velocity function for integrate: f(t, x_BNM).

        Where there is guidance, velocities with and without conditions are one call on twice the
        batch; at other times (strength 0, or outside cfg_from to cfg_until) one on the batch.

        Args:
            conditions: normalised condition mel, text states of each patch, lengths or None.
            filler_BND: the states without text.
            fresh_BN: true in frames of new speech. CFG-Zero*'s scale is computed over these, as
                velocities are not trained in a prompt's frames or in padding.
        """
        normal, states, lens = conditions
        strength = self.config.chosen(options, "cfg_strength")
        twice = conditions
        if strength > 0:
            lens = None if lens is None else self.concat(lens, lens)
            twice = self.concat(normal, normal * 0), self.concat(states, filler_BND), lens
        weight = self.array(fresh_BN[..., None].astype(np.float32))

        def velocity(t: float, x_BNM: Device) -> Device:
            guides = strength > 0 and options.cfg_from <= t <= options.cfg_until
            x = self.concat(x_BNM, x_BNM) if guides else x_BNM
            time = self.array(np.full(1, t, np.float32))  # one for all
            cond, text, frames = twice if guides else conditions
            v = self.network(x, cond, text, time, frames)
            if not guides:
                return v
            with_text, without = v[: len(x_BNM)], v[len(x_BNM) :]
            if options.guidance == "cfg-zero":
                without = without * best_scale(with_text, without, weight)
            return guide(with_text, without, strength)

        return velocity

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
        mel = checks.mels(np.asarray(mel_NM)[None], "mel_NM", self.config)
        text = checks.text(np.asarray(text_T)[None], 1, self.config, whole=True)
        p, frames = self.config.dit.patch_size, mel.shape[1]
        if -(-frames // p) < text.shape[1]:
            raise InputError(
                f"{text.shape[1]} tokens cannot be found in {frames} frames; {p} frames a token"
                " are needed at least: is this the text of this recording?"
            )
        lens = np.array([frames])
        with self.context():
            hidden = self.dit.embed_tokens(self.array(text))
            normal = self.normalised(mel)
            means, _ = self.token_guesses(self.array(text), hidden, normal, lens)
        patches = searched_durations(normal[0], means[0], p)
        return np.diff(np.minimum(np.cumsum(patches) * p, frames), prepend=0)

    def vocode(self, mel_BNM: np.ndarray, lens_B: np.ndarray | None = None) -> list[np.ndarray]:
        """Log mels to waves.

        Args:
            mel_BNM: float32 log mels.
            lens_B: frames of each item, or None for N.

        Returns:
            B waves, float32 at 24 kHz, of (frames - 1) * hop_length samples.

        Raises:
            InputError: no mel.
            CheckpointError: the folder has no vocoder.
        """
        if not self.release.has(VOCODER):
            raise CheckpointError(
                f"{self.folder} has no {VOCODER}; make one from a published Vocos checkpoint"
                " (charactr/vocos-mel-24khz) with: python -m convert"
            )
        mel = checks.mels(mel_BNM, "mel_BNM", self.config)
        lens = checks.lengths(lens_B, "lens_B", len(mel), mel.shape[1])
        with self.context():
            vocoder = self.module(VOCODER)
            frames = None if lens_B is None else self.array(lens)
            waves = self.numpy(vocoder(self.array(mel), frames))
        hop = self.config.audio.hop_length
        return [w[: max(0, n - 1) * hop].copy() for w, n in zip(waves, lens)]

    def clear_cache(self) -> None:  # noqa: B027, a backend may keep nothing
        """Frees cached memory; called between the chunks of a long text."""

    # How text becomes states of patches.

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
        """States of each patch with the text and without: 2 x (B, N', D)."""
        kind, p = self.config.dit.text_upsampling, self.config.dit.patch_size
        patches, patch_lens = -(-cond_BNM.shape[1] // p), -(-lens_B // p)
        text = self.array(text_BT)
        if kind == "none":
            mask = self.array(checks.length_mask(patch_lens, patches))
            return (
                self.dit.embed_text(text, patches, mask),
                self.dit.embed_text(text * 0 - 1, patches, mask),
            )
        count = (text_BT >= 0).sum(1)
        checks.some_text(count)
        hidden = self.dit.embed_tokens(text)
        if kind == "average":
            durations = average_durations(count, patch_lens, text_BT.shape[1], p)
        else:
            prompt = checks.leading_frames(cond_BNM) if prompt_B is None else prompt_B
            tokens = count * 0 if prompt_tokens_B is None else prompt_tokens_B
            normal = self.normalised(cond_BNM)
            means, log_durations = self.token_guesses(text, hidden, normal, prompt)
            durations = planned_durations(
                normal,
                means,
                predicted_patches(log_durations),
                count,
                patch_lens,
                prompt,
                tokens,
                p,
            )
        index = frame_tokens(durations, patches)
        states = self.layers.gather_tokens(hidden, self.array(index))
        return states, states * 0 + self.dit.embed_filler(text)

    def token_guesses(
        self, text_BT: Device, hidden_BTD: Device, normal_BNM: np.ndarray, prompt_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The aligner's mean mels (B, T, M) and log durations (B, T), for the prompts' speakers."""
        speaker = self.array(checks.speakers(normal_BNM, prompt_B, self.config.dit.patch_size))
        means = self.dit.token_means(text_BT, speaker)
        guesses = self.dit.aligner.log_durations(hidden_BTD, speaker)
        return self.numpy(means), self.numpy(guesses)

    def network(
        self, x: Device, cond: Device, text: Device, time: Device, lens: Device | None
    ) -> Device:
        """Runs the speech model in its weights' type; inputs and output are float32."""
        x, cond, text = (self.to_weights(a) for a in (x, cond, text))
        return self.to_float(self.run(x, cond, text, time, lens))

    def type_of(self, part: str, name: str) -> str:
        """The type of a tensor of MODEL, DURATION or VOCODER, by its name in the network."""
        return self.dtype if part == MODEL and not name.startswith(EXACT) else "float32"

    def module(self, name: str) -> Any:
        """The duration model or the vocoder, loaded when it is first needed."""
        if name not in self.modules:
            self.modules[name] = self.load(name)
        return self.modules[name]

    # What a backend adds.

    def run(self, *inputs: Device | None) -> Device:
        """Runs the DiT, compiled or not."""
        return (self.compiled or self.dit)(*inputs)

    def usual_dtype(self, device: str) -> str:
        """The transformer's default type on a device."""
        return "float32"

    @abstractmethod
    def load(self, name: str) -> Any:
        """Reads MODEL, DURATION or VOCODER of the folder into its network."""

    @abstractmethod
    def context(self) -> AbstractContextManager:
        """The context of array work: no gradients, this device."""

    @abstractmethod
    def array(self, x: np.ndarray) -> Device:
        """A NumPy array on the device, of the same type."""

    @abstractmethod
    def numpy(self, x: Device) -> np.ndarray:
        """An array of the device as float32 NumPy."""

    @abstractmethod
    def concat(self, a: Device, b: Device) -> Device:
        """Two batches as one."""

    @abstractmethod
    def ready(self, x: Device) -> None:
        """Waits until x has been computed."""

    @abstractmethod
    def to_weights(self, x: Device) -> Device:
        """Casts to the weights' type."""

    @abstractmethod
    def to_float(self, x: Device) -> Device:
        """Casts to float32."""
