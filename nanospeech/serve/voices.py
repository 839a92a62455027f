"""Voices: the names that a server's clients may ask for. Opens no voice."""

from __future__ import annotations

from pathlib import Path

from nanospeech.engine.base import Engine
from nanospeech.release.user_voices import USER, folded
from nanospeech.release.voices import added_voices, default_voice, list_voices, user_voices

from .errors import bad

ALIASES = (  # OpenAI's voices; each stands for one of the release, in turn
    *("alloy", "ash", "ballad", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer"),
    *("verse", "marin", "cedar"),
)


class Voices:
    """The voices of an engine's folder and of the user, by name; folders may change at any time."""

    engine: Engine

    def voices(self) -> list[str]:
        """The names that a client may ask for: the model's, then those that the user added."""
        own = list_voices(self.engine.folder)
        return [*own, *added_voices(own)]

    def default(self) -> str:
        """The voice of a request that names none."""
        return default_voice(self.engine.folder, self.engine.config.default_voice).name

    def aliases(self) -> dict[str, str]:
        """OpenAI's voices, and which voice each stands for; the first is the default one."""
        first = self.default()
        own = [first, *(n for n in list_voices(self.engine.folder) if n != first)]
        known = [folded(name) for name in self.voices()]
        return {a: own[i % len(own)] for i, a in enumerate(ALIASES) if a not in known}

    def find(self, voice: str | None) -> str:
        """The listed name of a voice that is asked for.

        Raises:
            ApiError: there is none of that name.
        """
        if voice is None:
            return self.default()
        own = list_voices(self.engine.folder)
        users = added_voices(own)
        known = {folded(USER + n.removeprefix(USER)): n for n in users}
        known |= {folded(n): n for n in reversed([*own, *users])}
        wanted = folded(voice.strip())  # of a client's list, as "alloy, echo"
        if wanted in known:
            return known[wanted]
        if wanted in (aliases := self.aliases()):
            return aliases[wanted]
        names = ", ".join(self.voices())
        message = f"voice {voice[:64]!r} not found; choose from {names}"
        raise bad(message, "voice", "voice_not_found")


def recorded(voice: str) -> tuple[int, ...]:
    """When a user's voice, its words and its settings were written; 0 for what is not there."""
    path = user_voices().get(voice.removeprefix(USER))
    if path is None:
        return ()
    return tuple(map(written, (path, path.with_suffix(".txt"), path.with_suffix(".json"))))


def written(path: Path) -> int:
    """When a file was, in nanoseconds."""
    try:
        return path.stat().st_mtime_ns
    except OSError:  # not there, or removed since
        return 0
