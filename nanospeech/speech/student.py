"""Student: when a model's student speaks, and with how much of a voice's recording."""

from __future__ import annotations

from typing import Any

from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.engine import checks
from nanospeech.release.voices import Prompt, Voice

from .beginning import last_words


def is_taught(config: ModelConfig, voice: Voice | None, options: SampleOptions) -> bool:
    """Whether a model has a student that was taught to speak so in a voice, None: a recording."""
    student = config.student
    if student is None or voice is None or voice.borrowed or voice.is_users:
        return False
    return voice.name in student.voices and checks.taught(config.as_student(), options)


def needed_prompt(engine: Any, recording: Prompt, by_student: bool) -> Prompt:
    """A voice's whole recording, or the end of it that is enough for the student.

    Args:
        engine: of the network that speaks.
        recording: of the voice.
        by_student: whether that network is the student.
    """
    seconds = engine.whole.config.student.prompt_seconds if by_student else 0
    return last_words(engine, recording, seconds) if seconds else recording
