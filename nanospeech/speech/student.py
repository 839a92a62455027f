"""Student: when a model's student speaks."""

from __future__ import annotations

from dataclasses import replace

from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.engine import checks
from nanospeech.release.voices import Voice


def is_taught(config: ModelConfig, voice: Voice | None, options: SampleOptions) -> bool:
    """Whether a model has a student that was taught to speak so in a voice, None: a recording."""
    student = config.student
    if student is None or voice is None or voice.borrowed or voice.is_users:
        return False
    if options.cfg_strength is None:
        options = replace(options, cfg_strength=voice.settings.cfg_strength)
    return voice.name in student.voices and checks.taught(config.as_student(), options)
