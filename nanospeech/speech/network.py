"""Network: which of a model's networks speaks: itself, its student or its imitator."""

from __future__ import annotations

from dataclasses import replace

from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.engine import checks
from nanospeech.release.voices import Voice


def network_for(config: ModelConfig, voice: Voice | None, options: SampleOptions) -> str:
    """The network for a voice, None: a recording: "model", "student" or "imitator".

    An imitator speaks after recordings and in the voices that are no more than one, and a student
    as it was taught to.
    """
    if voice is None or voice.borrowed or voice.is_users or voice.settings.imitated:
        return "imitator" if config.imitator else "model"
    student = config.student
    if student is None or voice.name not in student.voices:
        return "model"
    if options.cfg_strength is None:
        options = replace(options, cfg_strength=voice.settings.cfg_strength)
    return "student" if checks.taught(config.as_student(), options) else "model"
