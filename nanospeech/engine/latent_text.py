"""Latent text: what an EchoDiT reads of a text: ids, or another encoder's states."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import EchoConfig
from nanospeech.release.folder import TEXT_ENCODER
from nanospeech.release.text_encoder import TextEncoderFiles, read_text_encoder

from .hooks import Device, Hooks
from .text_states import TextStates, without_tags


class ReadsTexts(Hooks):
    """The part of an engine that reads texts.

    Attributes:
        backend: the engine's.
        text_cache: keeps the states of texts, see cache_texts; None computes them each time.
    """

    backend: str
    text_cache: TextStates | None = None

    @property
    def echo(self) -> EchoConfig:
        assert self.config.echo is not None
        return self.config.echo

    def text_input(self, text_BT: np.ndarray) -> Device:
        """What the network reads of a text: ids, or the states of another encoder.

        A tag has the state of the token before it, or zeros.
        """
        if self.echo.text_depth:
            return self.array(text_BT)
        if not self.echo.text_tags:
            return self.encoded_texts(text_BT)
        ids, (rows, columns), there = without_tags(text_BT)
        found = self.encoded_texts(ids)[self.array(rows), self.array(columns)]
        return found * self.array(there[..., None])

    def encoded_texts(self, text_BT: np.ndarray) -> Device:
        """States of another encoder, for ids padded with -1."""
        if self.text_cache is not None:
            return self.array(self.text_cache.states(text_BT))
        read = text_BT >= 0
        return self.encoder_states(np.where(read, text_BT, 0), read)

    def encoder_states(self, ids_BT: np.ndarray, read_BT: np.ndarray) -> Device:
        """States of the folder's encoder.

        Raises:
            InputError: an id that it does not know.
        """
        encoder = self.module(TEXT_ENCODER)
        if ids_BT.max() >= encoder.count:
            raise InputError(
                f"text_BT holds id {ids_BT.max()}; the text encoder has 0 to {encoder.count - 1}"
            )
        return encoder(self.array(ids_BT), self.array(read_BT))

    def cache_texts(self, folder: str | Path) -> None:
        """Keeps the states of a frozen text encoder in a folder, a file a text."""
        files = self.text_encoder_files()

        def encode(ids_BT: np.ndarray, read_BT: np.ndarray) -> np.ndarray:
            with self.context():
                return self.numpy(self.encoder_states(ids_BT, read_BT))

        self.text_cache = TextStates(encode, f"{self.backend} {files.fingerprint}", folder)

    def text_encoder_files(self) -> TextEncoderFiles:
        """The text encoder's config and weights.

        Raises:
            CheckpointError: there is none, or its states have another width.
        """
        if self.config.text_encoder is None:
            raise CheckpointError(
                f"the model in {self.folder} reads another encoder's states, but its config.json"
                " has no text_encoder"
            )
        files = read_text_encoder(self.folder / self.config.text_encoder.folder)
        if files.width != self.echo.text_input:
            raise CheckpointError(
                f"the text encoder's states are {files.width} wide, the model was trained with"
                f" {self.echo.text_input}"
            )
        return files
