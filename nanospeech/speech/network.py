"""Network: which network of a release speaks: the model's, a student's or an imitator's."""

from __future__ import annotations

from dataclasses import replace

from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.engine import checks
from nanospeech.release.folder import Release
from nanospeech.release.voices import Voice


def network_for(release: Release, voice: Voice | None, options: SampleOptions) -> str:
    """The network for a voice, None: a recording; a name for Release.of_network.

    An imitator speaks after recordings and in the voices that are no more than one, and a student,
    the model's or the imitator's, as it was taught to.

    Raises:
        CheckpointError: the imitator is not there, or of other mels.
    """
    if options.cfg_strength is None and voice is not None:
        options = replace(options, cfg_strength=voice.settings.cfg_strength)
    if (voice is None or voice.is_recording) and release.config.imitator:
        own = release.imitator().config
        return "imitator/student" if student_speaks(own, voice, options) else "imitator"
    return "student" if student_speaks(release.config, voice, options) else "model"


def student_speaks(config: ModelConfig, voice: Voice | None, options: SampleOptions) -> bool:
    """Whether a model has a student that was taught a voice, None: any recording, and to speak so.

    Args:
        config: of the model, which imitates if its student was taught no voices by name.
    """
    student = config.student
    if student is None:
        return False
    if student.voices:
        known = voice is not None and not voice.is_recording and voice.name in student.voices
    else:
        known = voice is None or voice.weights is None
    return known and checks.taught(config.as_student(), options)
