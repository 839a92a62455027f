"""Network: which network of a release speaks: the model's, a student's or an imitator's."""

from __future__ import annotations

from dataclasses import replace

from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.engine import checks
from nanospeech.errors import InputError
from nanospeech.release.folder import IMITATOR, Release
from nanospeech.release.voices import Voice


def network_for(release: Release, voice: Voice | None, options: SampleOptions) -> str:
    """The network for a voice, None: a recording; a name for Release.of_network.

    An imitator speaks after recordings and in the voices that are no more than one, and a student,
    the model's or the imitator's, as it was taught to. The imitator's student speaks by the
    imitator's vocoder, but by the model's in the voices that it names.

    Raises:
        CheckpointError: the imitator is not there, or of other mels.
    """
    if options.cfg_strength is None and voice is not None:
        options = replace(options, cfg_strength=voice.settings.cfg_strength)
    if (voice is None or voice.is_recording) and release.config.imitator:
        own = release.imitator().config
        if not student_speaks(own, voice, options):
            return "imitator"
        return "imitator/student/named" if is_named(own, voice) else "imitator/student"
    return "student" if student_speaks(release.config, voice, options) else "model"


def student_speaks(config: ModelConfig, voice: Voice | None, options: SampleOptions) -> bool:
    """Whether a model has a student for a voice, None: a recording, that was taught to speak so.

    The student of a model that imitates was taught after recordings. If it names voices, or only
    begins, it speaks for others where a number of steps is asked for that is one of its own.
    """
    student = config.student
    if student is None:
        return False
    named = is_named(config, voice)
    if config.imitates:
        all_of_them = not student.voices and not student.begins
        known = all_of_them or named or options.steps is not None
        known = known and (voice is None or voice.weights is None)
    else:
        known = voice is not None and named and not voice.is_recording
    return known and checks.taught(config.as_student(), options)


def is_named(config: ModelConfig, voice: Voice | None) -> bool:
    """Whether the student was taught a voice by its name."""
    return voice is not None and config.student is not None and voice.name in config.student.voices


def check_itself(release: Release, voice: Voice | None) -> None:
    """For what is measured of the model itself: nobody hears it in voices that are imitated.

    Raises:
        InputError: the release's imitator speaks in the voice, None: a recording.
    """
    if network_for(release, voice, SampleOptions()).startswith("imitator"):
        whose = "recordings are" if voice is None else f"{voice.name} is"
        raise InputError(
            f"{whose} imitated by another model than the one that is measured here; name that as"
            f" the model: {release.folder / IMITATOR}"
        )
