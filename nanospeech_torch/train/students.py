"""Students: builds what learns of a teacher: a distilled model, one to be understood, a listener.

Trains nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from convert.source import read_source
from nanospeech.architectures import ListenerConfig
from nanospeech.config import AudioConfig, DiTConfig, from_dict
from nanospeech.errors import InputError
from nanospeech.release.folder import MODEL, READING, Release, open_release
from nanospeech.release.tensors import check_tensors
from nanospeech.release.voices import find_voice, model_voices
from nanospeech_torch.dit import DiT
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.objectives.distill import Distilled
from nanospeech_torch.train.objectives.distill_config import ALL
from nanospeech_torch.train.objectives.distill_end import DistilledEnd
from nanospeech_torch.train.objectives.listening import Listening
from nanospeech_torch.train.objectives.text_aligner import TextAligner
from nanospeech_torch.train.objectives.understood import Understood

from .config import RunConfig
from .initial import float_weights, load_objective


def find_teacher(config: RunConfig) -> Release:
    """The release of config.teacher, with the weights of distill.voice if that is one voice.

    Raises:
        InputError: no such folder or voice, or it is distilled itself.
    """
    assert config.teacher is not None
    release = open_release(config.teacher)
    if release.config.dit.max_strength or release.config.echo:
        raise InputError(f"{release.folder} is distilled itself, or no speech model of mels")
    name = config.distill.voice
    if name and name != ALL:
        release = replace(release, voice=find_voice(name, release.folder).weights)
    return release


def check_whole(config: RunConfig, what: str) -> None:
    """Raises InputError where a run splits its model over processes."""
    if config.parallel.shard > 1 or config.parallel.tensor > 1:
        raise InputError(f"{what} is whole on every process; set parallel.shard, tensor: 1")


def load_voices(release: Release, base: DiT) -> dict[str, DiT]:
    """A release's network with the weights of each of its voices, by name.

    Raises:
        InputError: it has no voices.
    """
    voices = {name: voice.weights for name, voice in model_voices(release.folder).items()}
    if not voices:
        raise InputError(f"{release.folder} has no voices; leave distill.voice out")
    return {
        name: load_objective(replace(release, voice=weights)).transformer if weights else base
        for name, weights in sorted(voices.items())
    }


def build_student(config: RunConfig) -> Distilled:
    """A student that begins as config.initial's or as its teacher, but with guidance and step.

    It reads texts as its teacher, also where config.initial is a student of another one.

    Raises:
        InputError: see find_teacher, earlier_student and read_listener; or the run splits its
            model, or computes blocks again whose weights would then be without their voice's, or
            would compile them in most of its steps.
    """
    check_whole(config, "a student")
    if config.distill.voice == ALL and config.speed.compile != "off" and torch.cuda.is_available():
        raise InputError(
            f"speed.compile={config.speed.compile} and distill.voice=all do not go together on a"
            " GPU, where blocks are compiled for each shape: each number of a voice's clips in a"
            " batch is another one. Set speed.compile=off, or teach one voice"
        )
    release, c = find_teacher(config), config.distill
    teacher = load_objective(release)
    network = teacher.transformer
    student = DiT(replace(network.config, max_strength=c.max_strength))
    student.load_state_dict({**student.state_dict(), **network.state_dict()})
    if config.initial:
        learnt = earlier_student(config.initial, student.config)
        student.load_state_dict({**student.state_dict(), **learnt})
    tokenizer, seed = teacher.tokenizer, config.train.seed
    voices = load_voices(release, network) if c.voice == ALL else None
    if config.speed.interval and any(own is not network for own in (voices or {}).values()):
        raise InputError(
            "a student of voices with weights of their own keeps its activations: leave"
            " speed.checkpoint_interval and checkpoint_ops off, and set a smaller"
            " data.max_batch_frames where memory runs out"
        )
    parts = student, release.config, network, c, tokenizer, config.loss, seed, voices
    if c.method != "end":
        return Distilled(*parts)
    return DistilledEnd(*parts, listeners=read_listeners(c.listener, release), ear=config.ear)


def build_understood(config: RunConfig) -> Understood:
    """A speech model that begins as its teacher, which it is to sound like, with its listeners.

    Raises:
        InputError: see find_teacher and read_listener; or the run splits its model.
    """
    check_whole(config, "a model that learns to be understood")
    release, c = find_teacher(config), config.understood
    assert c.listener is not None
    listeners, before = read_listeners(c.listener, release), load_objective(release)
    network = copy.deepcopy(before.transformer)
    parts = network, release.config, before.transformer, listeners, c, before.tokenizer
    return Understood(*parts, config.loss, config.ear, config.train.seed)


def earlier_student(folder: str, wanted: DiTConfig) -> dict[str, Tensor]:
    """What a folder's student learnt, or one that is a student itself, to go on from.

    Raises:
        InputError: it has none, or one of other sizes.
    """
    release = open_release(folder)
    if release.config.student:
        release = release.student()
    if not release.config.dit.max_strength:
        raise InputError(f"initial is {folder}, which has no student and is none")
    if (got := release.config.dit) != wanted:
        raise InputError(f"{folder} has another student: {got}; the run makes {wanted}")
    learnt = {n: t for n, t in float_weights(release, MODEL).items() if not n.startswith(READING)}
    return {name.removeprefix("transformer."): t for name, t in learnt.items()}


def build_listener(config: RunConfig) -> Listening:
    """A listener of a teacher's mels and tokens, which its aligner places.

    Raises:
        InputError: see find_teacher; or the teacher aligns nothing, or the run splits its model.
    """
    check_whole(config, "a listener")
    release = find_teacher(config)
    check_aligned(release)
    network = Listener(listener_config(config, release))
    aligner = TextAligner(load_objective(release).transformer, release.config.audio)
    return Listening(
        network, aligner, release.tokenizer, release.config.audio, config.loss, config.listening
    )


def listener_config(config: RunConfig, release: Release) -> ListenerConfig:
    """A run's listener with its teacher's tokens, mel bands and patches."""
    dit = release.config.dit
    return replace(
        config.listener,
        tokens=len(release.tokenizer),
        n_mels=dit.n_mels,
        patch_size=dit.patch_size,
    )


def check_aligned(release: Release) -> None:
    """Raises InputError where a teacher's tokens have no places."""
    if (got := release.config.dit.text_upsampling) != "aligned":
        raise InputError(
            f"{release.folder} has dit.text_upsampling={got}, and a listener hears tokens where an"
            " aligner has placed them; name a teacher with dit.text_upsampling=aligned"
        )


def read_listeners(folders: str | Sequence[str] | None, release: Release) -> list[Listener]:
    """The listeners of run folders, of one or a list; arguments and errors of read_listener."""
    each = [folders] if isinstance(folders, str) else folders or []
    return [read_listener(folder, release) for folder in each]


def read_listener(folder: str, release: Release) -> Listener:
    """The listener of a run's latest checkpoint, its averaged weights.

    Args:
        folder: of the run; or a checkpoint of it.
        release: the teacher whose student it is to hear, or the model itself.

    Raises:
        InputError: no listener, or one of other tokens, patches or mels than the teacher's.
        CheckpointError: missing or damaged.
    """
    check_aligned(release)
    source = read_source(Path(folder))
    if "listener" not in source.config:
        raise InputError(
            f"{folder} is named as a listener and is no run of one; train one with"
            " nanospeech train listener --set teacher=FOLDER"
        )
    config = from_dict(ListenerConfig, source.config["listener"], f"{folder}: listener")
    audio = from_dict(AudioConfig, source.config.get("audio") or {}, f"{folder}: audio")
    got = {
        "vocabulary": unlike(source.vocab, release.tokenizer.vocab),
        "patch_size": config.patch_size,
        "audio": replace(audio, prompt_rms=None),
    }
    want = {
        "vocabulary": unlike(release.tokenizer.vocab, source.vocab),
        "patch_size": release.config.dit.patch_size,
        "audio": replace(release.config.audio, prompt_rms=None),
    }
    for name, value in want.items():
        if got[name] != value:
            raise InputError(
                f"the listener of {folder} has {name} {got[name]}, the teacher of what it hears"
                f" ({release.folder}) {value}; train a listener with teacher={release.folder}"
            )
    listener = Listener(config)
    tensors = {n.removeprefix("listener."): t for n, t in source.tensors.items()}
    wanted = {n: tuple(t.shape) for n, t in listener.state_dict().items()}
    check_tensors({n: tuple(t.shape) for n, t in tensors.items()}, wanted, Path(folder))
    listener.load_state_dict({n: t.float() for n, t in tensors.items()})
    return listener


def unlike(vocab: Sequence[str], other: Sequence[str]) -> str:
    """A vocabulary by its size and its first token that another does not have at that place."""
    place = next((i for i, (a, b) in enumerate(zip(vocab, other)) if a != b), len(other))
    return " ".join([f"of {len(vocab)} tokens", *(f"with {t!r}" for t in vocab[place : place + 1])])
