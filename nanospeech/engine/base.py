"""Engine: a loaded model, NumPy in and out. What all backends share; knows no array library.

A backend adds its own network modules and a handful of hooks, which are in hooks.py. What texts and
prompts are made into before sampling is in conditioning.py.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np

from nanospeech.arguments import check_kind
from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.folder import MODEL, VOCODER, Release
from nanospeech.text.tokenizer import Tokenizer

from . import checks
from .compiled import FewLengths
from .conditioning import Conditioning
from .hooks import Device
from .sampling import OWN_EPSS, best_scale, guide, integrate, rescaled_velocity, time_grid
from .shared import Shared

DTYPES = ("float32", "float16", "bfloat16")
# Parts of the speech model that are always float32: they determine durations, which must not depend
# on rounding, and cost next to nothing.
EXACT = ("text_embed.", "aligner.")


class Engine(Shared, Conditioning):
    """A model on a device.

    Mels at this seam are natural log mels. A frame of a condition that is exactly zero in every
    band is no condition. The ODE's state is in normalised units, (log_mel - mel_mean) / mel_std,
    which are log mels for the published weights.

    Attributes:
        backend: "torch", "mlx" or "onnx".
        config: the release's ModelConfig.
        tokenizer: text to ids.
        folder: the release folder.
        device: the device's name.
        dtype: of the speech model's transformer; text, ODE's state and time are float32 always.
        rounding: type to which its weights are rounded before they are of this one; None: no other.
    """

    backend: str
    rounding: str | None = None
    compiler: type[FewLengths]

    def __init__(self, release: Release, device: str, dtype: str | None, compiles: bool = False):
        self.release = release
        self.config: ModelConfig = release.config
        self.tokenizer: Tokenizer = release.tokenizer
        self.folder: Path = release.folder
        self.device = device
        self.dtype = dtype or self.usual_dtype(device)
        self.compiles = compiles
        self.modules: dict[Path, Any] = {}
        self.paths: dict[str, Path] = {}
        self.voice_engines: dict[tuple[Path | None, str], Engine] = {}
        self.owner = ref(self)  # of the engines of voices; none of these keeps another one alive
        self.whole = release  # whichever voice and network speak
        self.speaks = "model"  # of the networks that Release.of_network knows
        self._dit: Any = None
        if not self.waits:
            self.load_network()

    @property
    def waits(self) -> bool:
        """Whether the model's own network is read when it is first needed, as it may never be."""
        return self.whole.config.student is not None or self.whole.config.imitator

    @property
    def reads(self) -> tuple[Path, Path | None]:
        """The files of the network that samples: its own, and that of the voice's changes."""
        return self.release.path(MODEL), self.release.voice

    @property
    def dit(self) -> Any:
        """The network that samples."""
        if self._dit is None:
            self.load_network()
        return self._dit

    def load_network(self) -> None:
        """Reads the network that samples."""
        with self.context():
            self.set_network(self.load(MODEL))

    def set_network(self, dit: Any) -> None:
        """Makes this the network that samples, compiled if the engine compiles."""
        self._dit = dit
        self.compiled = self.compiler(dit) if self.compiles else None

    def with_voice(self, weights: Path | None, network: str = "model") -> Engine:
        """The engine of a voice with weights of its own; they share all but the network.

        Args:
            weights: a Voice's; None gives the engine of the model as it is.
            network: which of the folder's speaks, see Release.of_network.

        Raises:
            CheckpointError: the file is damaged, or of another model.
        """
        owner = self.owner()
        if owner is None:  # it is gone, and this one is left
            owner, self.owner, self.voice_engines = self, ref(self), {}
        if owner is not self:
            return owner.with_voice(weights, network)
        key = weights, network
        if key == (self.release.voice, self.speaks):
            return self
        if key not in self.voice_engines:
            other = copy.copy(self)
            other.voice_engines = {}
            release = dataclasses.replace(self.whole, voice=weights).of_network(network)
            other.release, other.config, other._dit = release, release.config, None
            other.tokenizer, other.paths, other.speaks = release.tokenizer, {}, network
            if network != "model" or not self.waits:
                made = self.voice_engines.values()
                if (twin := next((e for e in made if e.reads == other.reads), None)) is None:
                    other.load_network()
                else:  # a student by two vocoders is one network
                    other._dit, other.compiled = twin.dit, twin.compiled
            self.voice_engines[key] = other
        return self.voice_engines[key]

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
            time_B: float32 times in [0, 1]. Of a distilled model (B, 3): time, guidance strength
                over dit.max_strength, one over the solver's steps.
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
        time = checks.times(time_B, len(x), self.distilled)
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
            options: solver, grid and guidance (arXiv 2207.12598); steps, a cfg_strength or a
                temperature of None are the model's own.
            lens_B: total frames of each item (prompt and new speech), or None for N.
            prompt_frames_B: frames of each prompt; None counts those before the first all-zero
                one. Aligned models use it, and cfg-zero.
            prompt_tokens_B: tokens that belong to the prompt. An aligned model finds
                these in the prompt by search and scales the new ones to the remaining frames; with
                0 it hears the prompt without its words. Without it, it scales all.
            on_step: called as on_step(done, steps) after each step; it may raise.

        Returns:
            float32 (B, N, M): the last state as log mel, the prompt's part included; without
            meaning past lens_B.

        Raises:
            InputError: shapes that do not fit together, ids outside the vocabulary, or fewer
                frames than the text needs.
        """
        check_kind("options", options, SampleOptions, "SampleOptions(...) or left out")
        x = checks.mels(noise_BNM, "noise_BNM", self.config)
        cond = checks.mels(cond_BNM, "cond_BNM", self.config, like=x)
        text = checks.text(text_BT, len(x), self.config)
        lens = checks.lengths(lens_B, "lens_B", len(x), x.shape[1])
        prompt = checks.lengths(prompt_frames_B, "prompt_frames_B", len(x), x.shape[1], cond)
        with self.context():
            # cast once: every evaluation reads them
            made = self.text_states(text, cond, lens, prompt, prompt_tokens_B)
            states, filler = (self.to_weights(s) for s in made)
            normal = self.to_weights(self.array(self.normalised(cond)))
            frames = None if lens_B is None else self.array(lens)
            fresh = checks.length_mask(lens, x.shape[1]) & ~checks.length_mask(prompt, x.shape[1])
            velocity = self.guided(options, (normal, states, frames), filler, fresh)
            times = self.grid(options)
            count = len(times) - 1
            spread = self.config.chosen(options, "temperature")
            state = self.array(x * np.float32(spread))
            steps = integrate(velocity, state, times, options.method, options.zero_init)
            for done, state in enumerate(steps, start=1):
                self.ready(state)
                if on_step is not None:
                    on_step(done, count)
            audio = self.config.audio
            return self.numpy(state) * audio.mel_std + audio.mel_mean

    @property
    def distilled(self) -> bool:
        """Whether the network has guidance and step as inputs: one forward an evaluation."""
        return self.config.dit.max_strength > 0

    @property
    def student(self) -> Engine:
        """The engine of this network's student."""
        name = "student" if self.speaks == "model" else f"{self.speaks}/student"
        return self.with_voice(self.release.voice, name)

    def begins(self, options: SampleOptions) -> list[float]:
        """The times of the student's steps with which speech begins, the last of which is ours.

        Empty where there is no student that begins, steps are asked for, or the student was not
        taught to speak so.
        """
        student = self.config.student
        if student is None or not student.begins or options.steps is not None:
            return []
        if not checks.taught(self.config.as_student(), options):
            return []
        return time_grid(student.steps, "uniform")[: student.begins + 1]

    def grid(self, options: SampleOptions) -> list[float]:
        """The times at which the solver stops."""
        count = int(self.config.chosen(options, "steps"))
        own = self.config.rules == "f5" and count in OWN_EPSS
        schedule = "uniform" if own or self.distilled else options.schedule
        times = time_grid(count, schedule, options.sway_sampling_coef)
        begun = self.begins(options)
        return begun + [t for t in times if not begun or t > begun[-1] + 1e-6]

    def guided(
        self,
        options: SampleOptions,
        conditions: tuple[Device, Device, Device | None],
        filler_BND: Device,
        fresh_BN: np.ndarray,
    ) -> Callable[[float, Device], Device]:
        """The velocity function for integrate: f(t, x_BNM).

        Where a student begins, its velocities are the first. Where there is guidance, velocities
        with and without conditions are one call on twice the batch; at other times (strength 0, or
        outside cfg_from to cfg_until) one on the batch, and so always in a distilled model, whose
        network has guidance and step as inputs.

        Args:
            conditions: normalised condition mel, text states of each patch, lengths or None.
            filler_BND: the states without text.
            fresh_BN: true in frames of new speech. CFG-Zero*'s scale and the rescaling of guidance
                go by these, as velocities are not trained in a prompt's frames or in padding.
        """
        normal, states, lens = conditions
        strength = self.config.chosen(options, "cfg_strength")
        if self.distilled:
            checks.distilled(self.config, options)
            more = [
                strength / self.config.dit.max_strength,
                1 / self.config.chosen(options, "steps"),
            ]
            return lambda t, x: self.network(
                x, normal, states, self.array(np.array([[t, *more]], np.float32)), lens
            )
        begun, first = self.begins(options), None
        if begun:
            first = self.student.guided(options, conditions, filler_BND, fresh_BN)
        twice = conditions
        if strength > 0:
            lens = None if lens is None else self.concat(lens, lens)
            twice = self.concat(normal, normal * 0), self.concat(states, filler_BND), lens
        weight = self.array(fresh_BN[..., None].astype(np.float32))
        share = self.config.chosen(options, "cfg_rescale")

        def velocity(t: float, x_BNM: Device) -> Device:
            if first is not None and t < begun[-1]:
                return first(t, x_BNM)
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
            found = guide(with_text, without, strength)
            return rescaled_velocity(found, with_text, x_BNM, t, weight, share)

        return velocity

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
        if not self.has(VOCODER):
            raise CheckpointError(
                f"{self.folder} has no {VOCODER}; make one from a published Vocos checkpoint"
                " (charactr/vocos-mel-24khz) with: nanospeech convert"
            )
        mel = checks.mels(mel_BNM, "mel_BNM", self.config)
        if not mel.shape[1]:
            raise InputError("mel_BNM has no frames")
        lens = checks.lengths(lens_B, "lens_B", len(mel), mel.shape[1])
        with self.context():
            vocoder = self.module(VOCODER)
            frames = None if lens_B is None else self.array(lens)
            waves = self.numpy(vocoder(self.array(mel), frames))
        hop = self.config.audio.hop_length
        return [w[: max(0, n - 1) * hop].copy() for w, n in zip(waves, lens)]

    def clear_cache(self) -> None:
        """Frees cached memory; called between the chunks of a long text."""

    def network(
        self, x: Device, cond: Device, text: Device, time: Device, lens: Device | None
    ) -> Device:
        """Runs the speech model in its weights' type; inputs and output are float32."""
        x, cond, text = (self.to_weights(a) for a in (x, cond, text))
        return self.to_float(self.run(x, cond, text, time, lens))

    def type_of(self, part: str, name: str) -> str:
        """The type of a tensor of MODEL, DURATION or VOCODER, by its name in the network."""
        return self.dtype if part == MODEL and not name.startswith(EXACT) else "float32"

    # What a backend may change.

    def run(self, *inputs: Device | None) -> Device:
        """Runs the DiT, compiled or not."""
        dit = self.dit  # which may be loaded, and compiled, by now
        return (self.compiled or dit)(*inputs)

    def usual_dtype(self, device: str) -> str:
        """The transformer's default type on a device."""
        return "float32"
