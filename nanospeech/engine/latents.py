"""Latents: engines of EchoDiT, which speaks audio latents. Knows no array library.

The seam is that of base.py with latents in the place of mels: `cond` is the speaker's, (B, S, C),
and x, noise and results have a length of their own. Times are the network's: 1 is noise, 0 speech.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nanospeech.audio.mel import log_mel
from nanospeech.config import SampleOptions
from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import EchoOptions
from nanospeech.release.folder import CODEC

from . import checks
from .base import Engine
from .codec_streaming import decode_pieces, encode_pieces, whole_hops
from .echo_sampling import echo_options, euler
from .hooks import Device
from .latent_text import ReadsTexts

# Latents that are decoded or encoded at once, 10 s of DAC-VAE's: each takes 5 or 3 MB meanwhile
PIECE = 250


class LatentEngine(ReadsTexts, Engine):
    """An EchoDiT on a device."""

    @property
    def aligned(self) -> bool:
        return False

    def velocity(  # type: ignore[override]
        self,
        x_BNC: np.ndarray,
        cond_BSC: np.ndarray,
        text_BT: np.ndarray,
        time_B: np.ndarray,
        *,
        lens_B: np.ndarray | None = None,
        prompt_frames_B: np.ndarray | None = None,
        drop_audio: bool = False,
        drop_text: bool = False,
        prefix_BNC: np.ndarray | None = None,
        seconds_B: np.ndarray | None = None,
    ) -> np.ndarray:
        """The network alone: the velocity from speech to noise at one time.

        Args:
            x_BNC: float32 latents.
            cond_BSC: the speaker's latents; S may be 0.
            text_BT: int64 token ids, padded with -1.
            time_B: float32 times in [0, 1], of which 1 is noise.
            lens_B: latents of each item that its others see, or None for N.
            prompt_frames_B: the speaker's latents; None counts those before the first all-zero one.
            drop_audio: leave the speaker out.
            drop_text: leave the text out.
            prefix_BNC: the latents before x, for networks that continue speech.
            seconds_B: target duration, for networks that were trained with one.

        Returns: float32 (B, N, C), zero past lens_B.

        Raises:
            InputError: shapes that do not fit together, or ids outside the vocabulary.
        """
        x = checks.mels(x_BNC, "x_BNC", self.config)
        time = checks.times(time_B, len(x))
        lens = checks.lengths(lens_B, "lens_B", len(x), x.shape[1])
        own = checks.length_mask(lens, x.shape[1])
        span = self.span(lens, seconds_B)
        with self.context():
            contexts, masks, places = self.conditions(cond_BSC, text_BT, span, prompt_frames_B)
            start = 0
            if prefix_BNC is not None:
                start = prefix_BNC.shape[1]
                contexts, before = self.continued(contexts, prefix_BNC, start, x.shape[1])
                masks = [before, *masks]
            if seconds_B is None and self.echo.target_duration:  # of each item, not of the batch
                seconds_B = (start + lens) / self.config.audio.frame_rate
            masks[-2] = masks[-2] & (not drop_text)
            masks[-1] = masks[-1] & (not drop_audio)
            v = self.run_echo(
                self.array(np.where(own[..., None], x, 0)),
                self.array(time),
                self.dit.joined(contexts),
                np.concatenate([self.patched(lens, x.shape[1]), *masks], 1),
                start,
                seconds_B,
                places,
            )
            return np.where(own[..., None], self.numpy(v), 0)

    def conditions(
        self,
        cond_BSC: np.ndarray,
        text_BT: np.ndarray,
        span_B: np.ndarray,
        prompt_B: np.ndarray | None,
    ) -> tuple[Any, list[np.ndarray], np.ndarray | None]:
        """Each block's keys and values of text and speaker, the masks of the two, tokens' places.

        Args:
            span_B: latents of each item's speech.
        """
        batch = len(span_B)
        text = checks.text(text_BT, batch, self.config)
        cond = np.asarray(cond_BSC, np.float32)
        if cond.ndim == 3 and cond.shape[1] == 0:  # no speaker
            cond = np.zeros((batch, self.echo.speaker_patch, cond.shape[2]), np.float32)
        cond = checks.mels(cond, "cond_BSC", self.config)
        if len(cond) != batch:
            raise InputError(f"cond_BSC has {len(cond)} items, but there are {batch} of latents")
        if prompt_B is None:
            lens = checks.leading_frames(cond)
        else:
            lens = checks.lengths(prompt_B, "prompt_frames_B", batch, cond.shape[1], cond)
        heard = checks.length_mask(lens, cond.shape[1])
        cond = np.where(heard[..., None], self.normalised(cond), 0).astype(np.float32)
        read = text >= 0
        if text.shape[1] == 0:
            raise InputError("text_BT holds no tokens; this model needs some text, or padding")
        states = self.dit.text_states(self.text_input(text), self.array(read), self.array(text))
        speaker, counted = self.dit.speaker_states(
            self.to_weights(self.array(cond)), self.array(heard)
        )
        span = self.array(np.asarray(span_B, np.float32))
        places = self.dit.text_places(states, self.array(read), span)
        contexts = self.dit.contexts(states, speaker, self.dit.text_angles(places))
        found = None if places is None else self.numpy(places)
        return contexts, [read, self.numpy(counted) > 0], found

    def patched(self, lens_B: np.ndarray, length: int) -> np.ndarray:
        """Which of the network's patches of latents are within each item: bool (B, N / p)."""
        p = self.echo.latent_patch
        return checks.length_mask(-(-lens_B // p), -(-length // p))

    def span(self, lens_B: np.ndarray, seconds_B: np.ndarray | None) -> np.ndarray:
        """Latents of each item's speech: of its target duration, or all."""
        if seconds_B is None:
            return lens_B
        return np.asarray(seconds_B, np.float32) * self.config.audio.frame_rate

    def continued(
        self, contexts: Any, prefix_BNC: np.ndarray, start: int, extra: int
    ) -> tuple[Any, np.ndarray]:
        """Contexts with the latents before `start`, and the mask of these."""
        p = self.echo.speaker_patch
        if not self.echo.continues:
            raise CheckpointError(
                f"the model in {self.folder} cannot continue latents: it has no latent_encoder"
            )
        if start % p:
            raise InputError(f"{start} latents come before x; they should be a multiple of {p}")
        length = -(-(start + extra) // p) * p
        whole = np.zeros((len(prefix_BNC), length, prefix_BNC.shape[2]), np.float32)
        whole[:, :start] = self.normalised(prefix_BNC[:, :start])
        states = self.dit.latent_states(self.to_weights(self.array(whole)))
        latents = self.dit.latent_contexts(states)
        before = np.arange(length // p) * p < start
        joined = [(one, *rest) for one, rest in zip(latents, contexts)]
        return joined, np.broadcast_to(before, (len(whole), length // p))

    def run_echo(
        self,
        x: Device,
        time: Device,
        joined: Any,
        mask_BK: np.ndarray,
        start: int = 0,
        seconds_B: np.ndarray | None = None,
        places_BT: np.ndarray | None = None,
    ) -> Device:
        """Runs the network in its weights' type; x and the velocity are float32."""
        places = None
        if self.echo.text_window and places_BT is not None:
            places = self.array(places_BT)
        whole = places is None and mask_BK.all()
        mask = None if whole else self.array(np.ascontiguousarray(mask_BK))
        seconds = None
        if self.echo.target_duration:
            if seconds_B is None:  # as long as x
                seconds_B = np.full(len(x), (start + x.shape[1]) / self.config.audio.frame_rate)
            seconds = self.array(np.asarray(seconds_B, np.float32))
        v = self.dit(self.to_weights(x), time, joined, mask, start, seconds, places)
        return self.to_float(v)

    def sample(  # type: ignore[override]
        self,
        noise_BNC: np.ndarray,
        cond_BSC: np.ndarray,
        text_BT: np.ndarray,
        options: SampleOptions | EchoOptions | None = None,
        *,
        lens_B: np.ndarray | None = None,
        prompt_frames_B: np.ndarray | None = None,
        prompt_tokens_B: np.ndarray | None = None,
        on_step: Callable[[int, int], None] | None = None,
        prefix_BNC: np.ndarray | None = None,
        seconds_B: np.ndarray | None = None,
    ) -> np.ndarray:
        """Solves the ODE from noise to latents of speech.

        Args:
            noise_BNC: float32 standard normal.
            cond_BSC, text_BT, lens_B, prompt_frames_B, prefix_BNC, seconds_B: as in velocity.
            options: EchoOptions; of SampleOptions the steps, strength and temperature are taken,
                and its times of guidance, which count from noise; None is the model's own.
            prompt_tokens_B: without meaning here: the speaker's words are not read.
            on_step: called as on_step(done, steps) after each step; it may raise.

        Returns:
            float32 (B, N, C).

        Raises:
            InputError: shapes that do not fit together, or ids outside the vocabulary.
        """
        o = echo_options(options, self.config.echo_sampling)
        x = checks.mels(noise_BNC, "noise_BNC", self.config)
        lens = checks.lengths(lens_B, "lens_B", len(x), x.shape[1])
        span = self.span(lens, seconds_B)
        with self.context():
            contexts, masks, places = self.conditions(cond_BSC, text_BT, span, prompt_frames_B)
            start = 0
            if prefix_BNC is not None:
                start = prefix_BNC.shape[1]
                contexts, before = self.continued(contexts, prefix_BNC, start, x.shape[1])
                masks = [before, *masks]
            if seconds_B is None and self.echo.target_duration:  # of each item, not of the batch
                seconds_B = (start + lens) / self.config.audio.frame_rate
            masks = [self.patched(lens, x.shape[1]), *masks]
            velocity = self.echo_velocity(contexts, masks, o, start, seconds_B, places, lens)
            state = start_state = self.array(x * np.float32(o.truncation))
            for done, state in enumerate(euler(velocity, start_state, o), start=1):
                self.ready(state)
                if on_step is not None:
                    on_step(done, o.steps)
            audio = self.config.audio
            return self.numpy(state) * audio.mel_std + audio.mel_mean

    def sample_blocks(
        self,
        noises: Sequence[np.ndarray],
        cond_BSC: np.ndarray,
        text_BT: np.ndarray,
        options: SampleOptions | EchoOptions | None = None,
        *,
        prefix_BNC: np.ndarray | None = None,
        prompt_frames_B: np.ndarray | None = None,
    ) -> Iterator[np.ndarray]:
        """Blocks of latents one after the other, each a continuation of those before.

        Args:
            noises: a (B, n, C) of noise for each block; n is a multiple of the speaker's patch.
            prefix_BNC: latents that the first block continues.
        """
        total = sum(noise.shape[1] for noise in noises)
        shape = noises[0].shape[0], 0, noises[0].shape[2]
        said = np.zeros(shape, np.float32) if prefix_BNC is None else np.asarray(prefix_BNC)
        total += said.shape[1]
        for noise in noises:
            # the encoder sees room for all that is to come
            with self.context():
                start = said.shape[1]
                span = np.full(len(noise), total)
                contexts, masks, _ = self.conditions(cond_BSC, text_BT, span, prompt_frames_B)
                contexts, before = self.continued(contexts, said, start, total - start)
                masks = [np.ones(noise.shape[:2], bool), before, *masks]
                o = echo_options(options, self.config.echo_sampling)
                velocity = self.echo_velocity(contexts, masks, o, start, None)
                state = start_state = self.array((noise * o.truncation).astype(np.float32))
                for state in euler(velocity, start_state, o):
                    self.ready(state)
                audio = self.config.audio
                block = self.numpy(state) * audio.mel_std + audio.mel_mean
            yield block
            said = np.concatenate([said, block], 1)

    def echo_velocity(
        self,
        contexts: Any,
        masks: list[np.ndarray],
        o: EchoOptions,
        start: int,
        seconds_B: np.ndarray | None,
        places_BT: np.ndarray | None = None,
        lens_B: np.ndarray | None = None,
    ) -> Callable[[float, Device], Device]:
        """The guided velocity for `euler`: f(t, x).

        The velocities with all conditions, without text and without speaker are one call on up to
        three times the batch, in which masks alone differ.
        """
        *others, text, speaker = masks
        without = [(o.cfg_text, [text & False, speaker & False])]
        if not o.joint:
            without = [(o.cfg_text, [text & False, speaker])]
            without.append((o.cfg_speaker, [text, speaker & False]))
        strengths = [strength for strength, _ in without if strength]
        rows = [masks, *([*others, *row] for strength, row in without if strength)]
        guided = np.concatenate([np.concatenate(row, 1) for row in rows])
        plain = np.concatenate(masks, 1)
        made: dict[tuple[int, float], Any] = {}

        def velocity(t: float, x: Device) -> Device:
            if lens_B is not None and (lens_B % self.echo.latent_patch).any():
                # an item's last patch ends in zeros, as it does alone
                own = checks.length_mask(lens_B, x.shape[1])[..., None]
                x = x * self.array(own.astype(np.float32))
            guides = len(rows) > 1 and o.cfg_min_t <= t <= o.cfg_max_t
            copies = len(rows) if guides else 1
            stronger = o.speaker_kv_scale is not None and t >= o.speaker_kv_min_t
            key = copies, o.speaker_kv_scale if stronger and o.speaker_kv_scale else 1.0
            if key not in made:
                made.clear()
                made[key] = self.dit.joined(contexts, *key, o.speaker_kv_layers)
            wide = x
            for _ in range(copies - 1):
                wide = self.concat(wide, x)
            seconds = None if seconds_B is None else np.tile(seconds_B, copies)
            places = None if places_BT is None else np.tile(places_BT, (copies, 1))
            time = self.array(np.full(1, t, np.float32))
            mask = guided if guides else plain
            v = self.run_echo(wide, time, made[key], mask, start, seconds, places)
            n = len(x)
            found = with_all = v[:n]
            for i, strength in enumerate(strengths[: copies - 1], start=1):
                found = found + strength * (with_all - v[i * n : (i + 1) * n])
            return found

        return velocity

    def vocode(self, mel_BNM: np.ndarray, lens_B: np.ndarray | None = None) -> list[np.ndarray]:
        """Latents to waves, by the folder's codec.

        Args:
            mel_BNM: float32 latents (B, N, C).
            lens_B: latents of each item, or None for N.

        Returns:
            B waves, float32 at config.audio.sample_rate, of frames * hop_length samples. A model of
            mels has a vocoder instead of a codec: see Engine.vocode.

        Raises:
            InputError: no latents.
            CheckpointError: the folder has no codec.
        """
        if self.config.codec is None and self.config.vocoder is not None:
            return super().vocode(mel_BNM, lens_B)
        self.check_codec()
        latent = checks.mels(mel_BNM, "latent_BNC", self.config)
        lens = checks.lengths(lens_B, "lens_B", len(latent), latent.shape[1])
        # one by one: the codec's convolutions have no mask for padding
        rows = (row[:n] for row, n in zip(latent, lens))
        return [np.concatenate(list(self.vocode_stream(row, PIECE))) for row in rows]

    def check_codec(self) -> None:
        """Raises CheckpointError where the folder has no codec."""
        if self.config.codec is None or not self.has(CODEC):
            raise CheckpointError(
                f"{self.folder} has no {CODEC}: it makes latents, not sound; if they are DAC-VAE's,"
                " convert it again: nanospeech convert FOLDER --codec weights.pth --output OTHER"
            )

    def decoded(self, latent_NC: np.ndarray) -> np.ndarray:
        """The codec's wave of one item's latents: (N * hop_length,)."""
        with self.context():
            wave = self.module(CODEC).decode(self.array(latent_NC[None]))
            return self.numpy(wave)[0]

    def vocode_stream(self, latent_NC: np.ndarray, size: int = 25) -> Iterator[np.ndarray]:
        """The wave of one item's latents in pieces, which are those of the whole wave."""
        assert self.config.codec is not None, "a model of mels streams by its vocoder"
        return decode_pieces(self.decoded, latent_NC, self.config.codec, size)

    def encode(self, wave: np.ndarray) -> np.ndarray:
        """Latents (N, C) of a recording at config.audio.sample_rate: by the codec, or its log mel.

        Raises:
            InputError: not a wave of one channel.
            CheckpointError: the folder has no codec.
        """
        codec = self.config.codec
        if codec is None and self.config.vocoder is not None:
            return log_mel(wave, self.config.audio)
        self.check_codec()
        assert codec is not None
        heard = whole_hops(wave, codec.hop_length)
        return np.concatenate(list(encode_pieces(self.encoded, heard, codec, PIECE)))

    def encoded(self, wave: np.ndarray) -> np.ndarray:
        """The codec's latents (N, C) of whole hops of samples."""
        with self.context():
            return self.numpy(self.module(CODEC).encode(self.array(wave[None])))[0]
