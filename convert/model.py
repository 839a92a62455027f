"""Model: what a release folder is written from, read from a checkpoint or another such folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from nanospeech.architectures import StudentConfig
from nanospeech.config import AudioConfig, DiTConfig, DurationConfig, ModelConfig, from_dict
from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import EchoConfig
from nanospeech.release.folder import DURATION, PIECES, READING
from nanospeech.release.shapes import dit_config_from_shapes, duration_config_from_shapes
from nanospeech.release.tensors import check_tensors
from nanospeech.text.pieces import PieceTokenizer
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab

from .lazy import shapes_of
from .options import ConvertOptions
from .source import Source, check_trained, find_checkpoint, read_source
from .writer import is_release, read_release

C = TypeVar("C", DiTConfig, DurationConfig)


def network_shapes(config: DiTConfig | DurationConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes that a config calls for, without allocating anything."""
    from nanospeech_torch.dit import DiT
    from nanospeech_torch.duration import DurationHead, DurationTransformer
    from nanospeech_torch.engine import weightless

    with weightless():
        if isinstance(config, DiTConfig):
            return {f"transformer.{k}": tuple(v.shape) for k, v in DiT(config).state_dict().items()}
        return shapes_of(DurationHead(DurationTransformer(config)).state_dict())


def network_config(
    source: Source, path: str | Path, section: str, kind: type[C], from_shapes: Callable
) -> C:
    """A network's config, from its checkpoint or else from the tensors' shapes.

    Args:
        source: the checkpoint.
        path: of it, for messages.
        section: of the checkpoint's config, "dit" or "duration".
        kind: that section's dataclass.
        from_shapes: reads one off shapes.

    Raises:
        CheckpointError: the tensors are not those of the config.
    """
    shapes = shapes_of(source.tensors)
    if section in source.config:
        config = from_dict(kind, source.config[section], f"{path}: {section}")
    else:
        config = from_shapes(shapes, path)
    check_tensors(shapes, network_shapes(config), path)
    return config


@dataclass
class Model:
    """The parts that a release folder is written from."""

    config: ModelConfig
    tokenizer: Tokenizer
    # of "model", and perhaps "duration", "vocoder", "codec" and a trained "text_encoder"
    parts: dict[str, Mapping[str, Tensor]]
    step: int | None = None
    folder: Path | None = None  # of the release that it is read from
    encoder: dict[str, Any] | None = None  # config.json of the text encoder that was trained
    voices: tuple[str, ...] = ()  # of its teacher, whose weights are for it too
    like: Path | None = None  # the release that lent it what it had not
    lent_voice: bool = False  # whether its default voice is that release's
    imitator: Path | None = None  # folder of the model that speaks after recordings
    dtype: str = "float16"  # in which it is written where no other is asked for

    def file(self, name: str) -> Path | None:
        """A file or folder of that release, if it has it."""
        path = self.folder / name if self.folder else None
        return path if path is not None and path.exists() else None


def fits(source: Source, settings: Mapping[str, Any], name: str) -> bool:
    """Whether a file may be a speech model of this project's or of upstream nanospeech's."""
    if "dit" in source.config:
        return True
    return any(n.startswith("transformer.") for n in source.tensors) and not any(
        n.endswith((".to_out.0.bias", ".to_out.layers.0.bias")) for n in source.tensors
    )


def read(
    path: Path, source: Source, settings: Mapping[str, Any], name: str, o: ConvertOptions
) -> Model:
    """A speech model's checkpoint, with the vocabulary of the options or its own.

    Raises:
        InputError: there is no vocabulary.
        CheckpointError: not such a checkpoint, or a vocabulary of another size.
    """
    dit = network_config(source, path, "dit", DiTConfig, dit_config_from_shapes)
    kind = source.config.get("tokenizer", "chars")
    tokenizer = find_tokenizer(kind, source.vocab, o.vocab, dit.text_num_embeds, str(path))
    audio = from_dict(AudioConfig, source.config.get("audio") or {}, f"{path}: audio")
    language = source.config.get("language", "")
    config = ModelConfig(name, kind, audio, dit, language=language)
    if source.guided:
        config = dataclasses.replace(config, cfg_strength=0.0)
    voices: tuple[str, ...] = ()
    if "sampling" in source.config:
        sampling = source.config["sampling"]
        if isinstance(sampling, Mapping) and "voices" in sampling:
            voices = voices_of(sampling, path)
            sampling = {k: v for k, v in sampling.items() if k != "voices"}
        config = sampled(config, sampling, f"{path}: sampling")
    kept = {k: source.config[k] for k in ("imitates", "rules") if k in source.config}
    config = dataclasses.replace(config, **kept)
    return Model(config, tokenizer, {"model": source.tensors}, source.step, voices=voices)


def voices_of(sampling: Mapping[str, Any], path: str | Path) -> tuple[str, ...]:
    """The voices that a student was taught by name.

    Raises:
        CheckpointError: no list of names.
    """
    voices = sampling.get("voices") or ()
    if not isinstance(voices, (list, tuple)) or any(type(name) is not str for name in voices):
        raise CheckpointError(f"{path}: sampling.voices should be a list of names, got {voices!r}")
    return tuple(voices)


SAMPLING = ("steps", "step_counts", "temperature", "cfg_strength", "cfg_rescale", "default_voice")


def sampled(config: ModelConfig, values: Any, where: str) -> ModelConfig:
    """A config with the settings that a distilled model was made for.

    Raises:
        CheckpointError: others, or of wrong types.
    """
    known = dict(values) if isinstance(values, Mapping) else {"sampling": values}
    if extra := known.keys() - set(SAMPLING):
        raise CheckpointError(f"unknown keys {sorted(extra)} in {where}; it may hold {SAMPLING}")
    known = dataclasses.asdict(from_dict(ModelConfig, known, where))
    return dataclasses.replace(config, **{name: known[name] for name in SAMPLING})


def completed(read: Model, folder: str | Path, chosen: Container[str] = ()) -> Model:
    """A model with the duration model, the vocoder and the postfilter of a release, if it has none.

    Args:
        chosen: settings that the user chose, which stay even where they are 0.

    Raises:
        InputError: the release has another vocabulary.
    """
    other = from_release(folder, None)
    if other.tokenizer.vocab != read.tokenizer.vocab:
        raise InputError(f"{folder} has another vocabulary; its parts do not fit the model")
    config, parts = read.config, dict(read.parts)
    for part in ("duration", "vocoder"):
        if part not in parts and part in other.parts:
            parts[part] = other.parts[part]
            config = dataclasses.replace(config, **{part: getattr(other.config, part)})
    for name in ("postfilter", "leading_pause", "prompt_codec", "prompt_widen", "licence"):
        if name not in chosen and not getattr(config, name):
            config = dataclasses.replace(config, **{name: getattr(other.config, name)})
    return dataclasses.replace(read, config=config, parts=parts, like=other.folder)


ROUNDED = 0.05  # how far apart weights are at most that were rounded to 4 bits or more, relative


def add_student(
    config: ModelConfig,
    model: Mapping[str, Tensor],
    path: str | Path,
    weights: str,
    named: Sequence[str] | None = None,
    begins: int = 0,
) -> tuple[ModelConfig, Mapping[str, Tensor]]:
    """Reads a student of a model's voices and adds it to the model's config.

    Its text embedding and aligner are the model's, and are left out.

    Args:
        config: the model's.
        model: its speech model's weights.
        path: of the student's run.
        weights: which of its weights, see ConvertOptions.
        named, begins: student_voices and student_begins, see there.

    Raises:
        InputError: it knows one voice alone, or none by name and the model does not imitate; or it
            is a student of another model, at another temperature or up to less guidance than the
            model's.
        CheckpointError: it is no student.
    """
    source = read_source(find_checkpoint(path), weights)
    dit = network_config(source, path, "dit", DiTConfig, dit_config_from_shapes)
    sampling = source.config.get("sampling")
    taught_steps = ("steps", "step_counts")
    if not (dit.max_strength and isinstance(sampling, Mapping) and {*taught_steps} <= {*sampling}):
        raise CheckpointError(f"{path} is no student; name a run of nanospeech train distill")
    voices = voices_of(sampling, path)
    if not voices and (sampling.get("default_voice") or not config.imitates):
        raise InputError(
            f"{path} knows a single voice, or recordings, which {config.name} does not imitate;"
            " distil with distill.voice=all"
        )
    if dataclasses.replace(dit, max_strength=config.dit.max_strength) != config.dit:
        raise InputError(f"{path} is not a student of {config.name}: their networks differ")
    for name in (n for n in source.tensors if n.startswith(READING)):
        if name not in model or apart(source.tensors[name], model[name]) > ROUNDED:
            raise InputError(f"{path} is not a student of {config.name}: it reads text by others")
    if (taught := sampling.get("temperature", config.temperature)) != config.temperature:
        raise InputError(f"{path} was taught at temperature {taught}, not {config.temperature}")
    strength = sampling.get("cfg_strength", config.cfg_strength)
    if strength > dit.max_strength:
        raise InputError(
            f"{path} was taught guidance up to {dit.max_strength:g}; {config.name} speaks with"
            f" {strength:g}"
        )
    values = {k: sampling[k] for k in taught_steps}
    values |= {k: sampling[k] for k in ("cfg_strength", "cfg_rescale") if k in sampling}
    if named is not None and voices:
        raise InputError(f"{path} was taught {', '.join(voices)} by name; leave out student_voices")
    if begins and voices:
        raise InputError(f"{path} was taught {', '.join(voices)}, and speaks; none else begins")
    values |= {
        "begins": begins,
        "voices": list(voices or named or ()),
        "max_strength": dit.max_strength,
    }
    student = from_dict(StudentConfig, values, f"{path}: sampling")
    learnt = [n for n in source.tensors if not n.startswith(READING)]
    return dataclasses.replace(config, student=student), {n: source.tensors[n] for n in learnt}


def apart(a: Tensor, b: Tensor) -> float:
    """The relative distance of two tensors; 1 where their shapes differ."""
    if a.shape != b.shape:
        return 1.0
    a, b = a.float(), b.float()
    return float((a - b).norm() / b.norm().clamp(min=1e-12))


def from_release(folder: str | Path, vocab: str | Path | None) -> Model:
    """A whole release folder; packed weights are unpacked."""
    release, parts = read_release(folder)
    config, tokenizer = release.config, release.tokenizer
    if vocab is not None and config.tokenizer == "pieces":
        unbound = EchoConfig(text_input=1)  # a model of mels reads pieces of any count
        tokenizer = find_pieces(vocab, Path(folder), config.echo or unbound)
    elif vocab is not None:
        tokenizer = find_tokenizer(config.tokenizer, [], vocab, config.text_count, str(folder))
    config = dataclasses.replace(
        config,
        quantization=None,
        vocoder=config.vocoder if "vocoder" in parts else None,
        codec=config.codec if "codec" in parts else None,
        student=config.student if "student" in parts else None,
    )
    imitator = release.imitator().folder if config.imitator else None
    kind = dtype_of(parts["model"]) if release.config.quantization is None else "float16"
    return Model(config, tokenizer, parts, folder=release.folder, imitator=imitator, dtype=kind)


def dtype_of(tensors: Mapping[str, Tensor]) -> str:
    """The type that holds tensors as they are: float16 where all of them are."""
    return "float16" if all(t.dtype == torch.float16 for t in tensors.values()) else "float32"


def find_tokenizer(
    kind: str, carried: list[str], path: str | Path | None, count: int, model: str
) -> Tokenizer:
    """The vocabulary from a file, the checkpoint, or the kind itself; checked against the model.

    Raises:
        InputError: there is none.
        CheckpointError: it has another size, or is not the one that the checkpoint carries.
    """
    if path is not None:
        tokenizer = Tokenizer.load(kind, path)
        if differ(tokenizer.vocab, Tokenizer(kind, carried).vocab):
            raise CheckpointError(
                f"{path} is not the vocabulary that {model} was trained with, which it carries;"
                " leave out --vocab"
            )
    elif carried or kind == "bytes":
        tokenizer = Tokenizer(kind, carried)
    elif kind == "phonemes":
        tokenizer = Tokenizer(kind, phoneme_vocab())
    else:
        raise InputError(f"{model} does not carry its vocabulary; name its vocab.txt (--vocab)")
    if count - len(tokenizer) not in (0, 1):  # 1: a last empty line that was counted in training
        raise CheckpointError(
            f"the vocabulary has {len(tokenizer)} tokens, but {model} was trained with {count}"
        )
    return tokenizer


def find_pieces(named: str | Path | None, model: Path, echo: EchoConfig) -> PieceTokenizer:
    """The tokenizer.json that is named, or lies beside a checkpoint, or none.

    Args:
        named: its path.
        model: the checkpoint.
        echo: the model's network.

    Raises:
        InputError: the named one is missing.
        CheckpointError: it has more tokens than the model.
    """
    if named is not None and not Path(named).is_file():
        raise InputError(f"{named} not found; name the tokenizer.json of the model's text")
    found = PieceTokenizer(named or model.with_name(PIECES), echo.text_tags)
    count = echo.text_vocab
    if echo.text_depth and count < len(found):
        raise CheckpointError(
            f"{found.path} has {len(found)} tokens, but {model} was trained with {count}"
        )
    return found


def differ(tokens: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two vocabularies have different tokens; a last empty line may be one's alone."""
    return any(a != b for a, b in zip(tokens, others))


def add_duration(
    config: ModelConfig, vocab: Sequence[str], path: str | Path, weights: str
) -> tuple[ModelConfig, Mapping[str, Tensor]]:
    """Reads the duration model of a checkpoint or a release folder and adds it to the config.

    Args:
        vocab: the speech model's.

    Raises:
        InputError: the model is an EchoDiT.
        CheckpointError: it cannot be read, or has other tokens.
    """
    if config.echo is not None:
        raise InputError("--duration is not for an EchoDiT, which takes none; leave it out")
    duration, tensors, own = read_duration(Path(path), weights)
    if duration.text_num_embeds != config.dit.text_num_embeds:
        raise CheckpointError(
            f"{path} was trained with {duration.text_num_embeds} tokens, the speech model with"
            f" {config.dit.text_num_embeds}: train both with one vocabulary"
        )
    if differ(own, vocab):
        raise CheckpointError(
            f"{path} was trained with other tokens than the speech model, if as many: train both"
            " with one vocabulary"
        )
    return dataclasses.replace(config, duration=duration), tensors


def read_duration(
    path: Path, weights: str
) -> tuple[DurationConfig, Mapping[str, Tensor], list[str]]:
    """A duration model, its weights and the vocabulary that is told, if any.

    Args:
        path: of a checkpoint, a release folder or its file there.

    Raises:
        InputError: the release folder has none.
        CheckpointError: it cannot be read, or is no duration model.
    """
    folder = path.parent if path.name == DURATION and is_release(path.parent) else path
    if is_release(folder):
        release, parts = read_release(folder)
        if release.config.duration is None or "duration" not in parts:
            raise InputError(f"{folder} has no duration model; name a folder or checkpoint of one")
        return release.config.duration, parts["duration"], release.tokenizer.vocab
    source = read_source(path, weights)
    check_trained(source, path, "duration")
    config = network_config(source, path, "duration", DurationConfig, duration_config_from_shapes)
    return config, source.tensors, source.vocab
