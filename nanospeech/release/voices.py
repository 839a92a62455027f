"""Voices: recordings with their words, those of release folders and a user's own, by name."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from nanospeech.config import ModelConfig, SampleOptions, from_dict
from nanospeech.errors import InputError, VoiceError, reason
from nanospeech.files import is_of_mac

from .user_voices import USER, folded, voices_folder
from .voice_facts import ABOUT, read_settings

log = logging.getLogger("nanospeech")
SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".opus")
# its default/voices/ and voices/ serve models without any of their own
PACKAGED = Path(__file__).parents[1]
SHIPPED = "default/"  # before a voice's name: one of the package's voices
PACES = (0.5, 2.0)  # and speeds


@dataclass(frozen=True)
class VoiceSettings:
    """How a voice is spoken with its folder's model: the contents of NAME.json.

    Attributes:
        pace: seconds of the speaker's recordings over those that the model predicts, as
            nanospeech evaluate durations --set-pace measures it.
        speed: speaking rate relative to the speaker's own.
        cfg_strength: guidance strength where none is asked for; None is the model's.
        loudness: LUFS of the speech before it is levelled; None: not measured.
        imitated: the folder's imitator speaks, as it does after any other recording.
    """

    pace: float = 1.0
    speed: float = 1.0
    cfg_strength: float | None = None
    loudness: float | None = None
    imitated: bool = False

    def __post_init__(self):
        for name, x in ("pace", self.pace), ("speed", self.speed):
            if not PACES[0] <= x <= PACES[1]:
                raise InputError(f"{name} is {x}, should be {PACES[0]:g} to {PACES[1]:g}")
        SampleOptions(cfg_strength=self.cfg_strength)  # which knows its bounds
        if self.loudness is not None and not -70 <= self.loudness <= 0:
            raise InputError(f"loudness is {self.loudness}, should be -70 to 0 LUFS")

    @staticmethod
    def load(path: Path) -> VoiceSettings:
        """Reads a NAME.json, which need not be there.

        Raises:
            CheckpointError: it is not JSON, or not this and facts.
        """
        values = read_settings(path)
        values.pop(ABOUT, None)  # what voice_facts.py reads
        return from_dict(VoiceSettings, values, str(path))


@dataclass(frozen=True)
class Voice:
    """A prompt: its recording and the words spoken in it.

    Attributes:
        weights: file of its changes to the folder's model, or None; see voice_weights.
        settings: how it is spoken with that model.
        borrowed: whether it is the package's, and the folder another model's.
        is_users: whether it is a recording that the user keeps (user_voices.py).
    """

    name: str
    audio: Path
    text: str
    weights: Path | None = None
    settings: VoiceSettings = VoiceSettings()
    borrowed: bool = False
    is_users: bool = False

    @property
    def full_name(self) -> str:
        """The name that finds it even where the folder has another voice of its name."""
        return f"{USER if self.is_users else SHIPPED if self.borrowed else ''}{self.name}"

    @property
    def is_own(self) -> bool:
        """Whether it is the folder's: a recording of those that its model was trained on."""
        return not (self.borrowed or self.is_users)

    @property
    def is_recording(self) -> bool:
        """Whether it is no more to the folder's model than any recording."""
        return not self.is_own or self.settings.imitated


def own_voices(release: str | Path | None) -> dict[str, Path]:
    """A release's own voices: recordings by name."""
    return {} if release is None else recordings_in(Path(release) / "voices")


def model_voices(release: str | Path) -> dict[str, Voice]:
    """Those of a release's own voices that its model speaks, sorted: the imitator does the others.

    Raises:
        InputError, CheckpointError: see find_voice.
    """
    voices = {name: find_voice(name, release) for name in sorted(own_voices(release))}
    return {name: voice for name, voice in voices.items() if not voice.settings.imitated}


def shipped_voices() -> dict[str, Path]:
    """The package's voices: recordings by name."""
    return {**recordings_in(PACKAGED / "voices"), **recordings_in(PACKAGED / "default" / "voices")}


def user_voices() -> dict[str, Path]:
    """The voices that the user added (`nanospeech voices add`): recordings by name."""
    return recordings_in(voices_folder())


def added_voices(models: Iterable[str]) -> dict[str, Path]:
    """The user's recordings, sorted, by names that find them: behind USER where a model's is alike.

    Args:
        models: names of list_voices.
    """
    taken, users = set(map(folded, models)), sorted(user_voices().items())
    return {f"{USER}{n}" if folded(n) in taken else n: path for n, path in users}


def list_voices(release: str | Path | None = None) -> list[str]:
    """Names, sorted, of a release's own voices; of one without any, those of the package.

    A voice is a recording NAME.wav (or other audio) and its words, NAME.txt.
    """
    return sorted(own_voices(release) or shipped_voices())


def find_voice(name: str, release: str | Path | None = None) -> Voice:
    """Looks up a voice by name, in capitals or small letters.

    Names are matched against what the folders list, so none can lead out of them.

    Args:
        name: of one of the release's own voices, else of one that the user added. "user/NAME" is
            the user's whatever the release has, "default/NAME" one of the package's, and so is NAME
            where the release has no voices of its own.

    Raises:
        InputError: there is no such voice; the message lists the choices.
        CheckpointError: what its NAME.json says cannot be.
    """
    own, bare = own_voices(release), name.removeprefix(SHIPPED).removeprefix(USER)
    ships = release is not None and Path(release).resolve() == (PACKAGED / "default").resolve()
    users = None if name.startswith(SHIPPED) else _by_name(bare, user_voices())
    is_own = bare == name or (ships and not name.startswith(USER))
    if is_own and (found := _by_name(bare, own)):
        if users:
            warn_of_both(found.stem, users)
        there = found.with_suffix(".safetensors")
        return _voice(found, weights=there if there.is_file() else None)
    if users:
        return _voice(users, is_users=True)
    shipped = None if name.startswith(USER) else _by_name(bare, shipped_voices())
    if shipped and (bare != name or not own):
        # without its weights and settings: what was measured with another model means nothing here
        return Voice(shipped.stem, shipped, _words(shipped), borrowed=release is not None)
    names = [*list_voices(release), *(f"{USER}{n}" for n in sorted(user_voices()))]
    choices = f"choose from {', '.join(names)}" if names else "there are none; give a reference"
    if shipped:
        choices += f"; {SHIPPED}{shipped.stem} lends it the recording of a voice that ships"
    raise InputError(f"voice {name!r} not found; {choices}")


@lru_cache
def warn_of_both(own: str, users: Path) -> None:
    """Warns once that a name is a voice of the model's and one of the user's.

    A command looks up a voice several times.
    """
    log.warning("%s is the model's own voice of that name; yours is %s%s", own, USER, users.stem)


def _voice(recording: Path, weights: Path | None = None, is_users: bool = False) -> Voice:
    """A voice with its words and settings."""
    settings = VoiceSettings.load(recording.with_suffix(".json"))
    words = _words(recording)
    return Voice(recording.stem, recording, words, weights, settings, is_users=is_users)


def default_voice(release: str | Path | None, preferred: str | None = None) -> Voice:
    """The preferred voice, else the first of the release, else the package's own default.

    A release with voices of its own speaks with one of them, also where the preferred one is not
    there (which is warned of): a voice of the package is borrowed by its name alone.

    Raises:
        InputError: there is none, or the preferred one is missing.
    """
    if preferred is None:
        own, shipped = own_voices(release), shipped_voices()
        config = PACKAGED / "default" / "config.json"
        if not own and config.is_file():
            preferred = ModelConfig.load(config).default_voice
        preferred = preferred or next(iter(sorted(own or shipped)), None)
    if preferred is None:
        raise InputError("this model has no voices; give a reference recording and its words")
    own = own_voices(release)
    if own and not preferred.startswith((SHIPPED, USER)) and not _by_name(preferred, own):
        first = min(own)
        log.warning(
            "%s has no voice %s, which its config.json names as default_voice; %s speaks",
            release,
            preferred,
            first,
        )
        preferred = first
    return find_voice(preferred, release)


def _by_name(name: str, voices: dict[str, Path]) -> Path | None:
    """A voice's recording: of this name, else of one that is another spelling of it."""
    alike = {folded(known): path for known, path in sorted(voices.items(), reverse=True)}
    return voices.get(name) or alike.get(folded(name))


def _words(recording: Path) -> str:
    path = recording.with_suffix(".txt")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as e:
        message = f"cannot read the words of voice {recording.stem!r}, {path}: {reason(e)}"
        raise VoiceError(message) from e
    return text


def warn_of_strangers(config: ModelConfig, release: Path, voice: Voice | None) -> None:
    """Warns where a model that does not imitate gets a recording that is not of its own voices.

    Args:
        voice: the voice; None for a recording of the user's.
    """
    if voice is not None and not voice.is_recording:
        return
    if voice is not None and voice.borrowed:
        log.warning(
            "%s has no voice %s of its own: its model is given the recording of the one that ships",
            release,
            voice.name,
        )
    if not config.takes_recordings:
        log.warning(
            "the model %r does not imitate: it will speak in a voice of its own, not in the"
            " recording's; choose one of its voices, name a model that imitates, or finetune this"
            " one to the recording's speaker (nanospeech finetune)",
            config.name,
        )


def recordings_in(folder: Path) -> dict[str, Path]:
    if not os.path.isdir(folder):  # as a home folder that may not be entered
        return {}
    inside = (p for p in folder.iterdir() if not is_of_mac(p))
    files = sorted(p for p in inside if p.suffix.lower() in SUFFIXES)
    return {p.stem: p for p in files if p.with_suffix(".txt").is_file()}
