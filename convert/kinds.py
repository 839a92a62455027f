"""Kinds: whose checkpoint a file is. Each kind has a module that recognises and reads it.

To add a project's layout, write a module with two functions and a row of KINDS:

    fits(source, settings, name) -> bool      whether a file may be of the kind, by its names of
                                              tensors and metadata, and the settings beside it
    read(path, source, settings, name, o) -> Model      what a release folder is written from

`name` is the kind's, for modules that serve several; `settings` is the YAML or JSON file of
--config, or one found beside the checkpoint. A file that fits several kinds is asked about.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanospeech.errors import CheckpointError, InputError

if TYPE_CHECKING:  # a command's help needs no torch
    from .model import Model
    from .options import ConvertOptions
    from .source import Source

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A layout of checkpoints.

    Attributes:
        name: for --from.
        about: whose and what it is, for --help and questions.
        module: of convert; see above.
        project: what publishes such weights.
        licence: identifier of the licence under which it publishes them; None: the user's own.
    """

    name: str
    about: str
    module: str
    project: str = ""
    licence: str | None = None

    def fits(self, source: Source, settings: Settings) -> bool:
        """Whether a file may be of this kind."""
        return self._module().fits(source, settings, self.name)

    def read(self, path: Path, source: Source, settings: Settings, o: ConvertOptions) -> Model:
        """What a release folder is written from.

        Raises:
            InputError, CheckpointError: something is missing or does not fit together.
        """
        return self._module().read(path, source, settings, self.name, o)

    def _module(self) -> Any:
        return importlib.import_module(f"convert.{self.module}")


F5 = {"module": "f5", "project": "F5-TTS (SWivid/F5-TTS)", "licence": "cc-by-nc-4.0"}
KINDS = {
    kind.name: kind
    for kind in (
        Kind("nanospeech", "this project's or upstream nanospeech's", "own"),
        Kind("f5-v1", "F5-TTS v1 and its finetunes", **F5),
        Kind("f5-v0", "F5-TTS v0 (F5TTS_Base) and its finetunes; give --vocab", **F5),
        Kind("f5-mlx", "F5-TTS v1 in the layout of f5-tts-mlx", **F5),
        Kind("echo", "Echo-TTS", "echo", "Echo-TTS (jordand/echo-tts-base)", "cc-by-nc-sa-4.0"),
        Kind(
            "irodori",
            "Irodori-TTS; give its tokenizer.json as --vocab, and --codec",
            "echo",
            "Irodori-TTS (Aratako/Irodori-TTS)",
            "mit",
        ),
    )
}


def find_kind(path: Path, source: Source, settings: Settings, wanted: str | None) -> Kind:
    """The kind of a checkpoint: the wanted one, or the only one that it fits.

    Raises:
        InputError: no such kind, or the file fits several.
        CheckpointError: it fits none, or another project's and not the wanted one.
    """
    if wanted is not None:
        if wanted not in KINDS:
            raise InputError(f"kind {wanted!r} not known; choose --from {', '.join(KINDS)}")
        chosen = KINDS[wanted]
        others = [k for k in KINDS.values() if k.module != chosen.module]
        real = [k.name for k in others if k.fits(source, settings)]
        if real and not chosen.fits(source, settings):
            raise CheckpointError(
                f"{path} is no checkpoint of {wanted}: its tensors are those of {' or '.join(real)}"
            )
        return chosen
    fitting = [kind for kind in KINDS.values() if kind.fits(source, settings)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        choices = "; ".join(f"{kind.name}: {kind.about}" for kind in fitting)
        raise InputError(
            f"{path} may be of several kinds, which its tensors cannot tell apart; choose with"
            f" --from ({choices}), or name its YAML file with --config"
        )
    some = ", ".join(sorted(source.tensors)[:3])
    raise CheckpointError(
        f"{path} holds tensors such as {some}, which are of no kind that can be read here"
        f" ({', '.join(KINDS)})"
    )
