"""Run config: one YAML file is a run. Reads and checks; builds nothing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convert.settings import bounded_loader
from nanospeech.architectures import ListenerConfig
from nanospeech.config import (
    TOKENIZERS,
    AudioConfig,
    DiTConfig,
    DurationConfig,
    VocoderConfig,
    check_type,
    current_names,
    from_dict,
    option,
)
from nanospeech.errors import CheckpointError, InputError, reason, require
from nanospeech.latent_architectures import EchoConfig
from nanospeech_torch.train.data.batch import EarConfig, LossConfig
from nanospeech_torch.train.data.latents import EchoLossConfig
from nanospeech_torch.train.loop.config import LogConfig, TrainConfig
from nanospeech_torch.train.objectives.distill_config import DistillConfig
from nanospeech_torch.train.objectives.listening import ListeningConfig
from nanospeech_torch.train.objectives.understood import UnderstoodConfig
from nanospeech_torch.train.objectives.vocoder_gan import VocoderLossConfig
from nanospeech_torch.train.optim.optimizers import OptimizerConfig
from nanospeech_torch.train.scale.mesh import ParallelConfig
from nanospeech_torch.train.scale.speed import SpeedConfig

MODELS = ("speech", "echo", "distilled", "understood", "listener", "duration", "vocoder")
TAUGHT = ("distilled", "understood", "listener")  # by a teacher
PRECISIONS = ("no", "bf16", "fp16")
PARTS = {  # sections that are of a kind of model, its sizes first
    "speech": ("dit", "loss"),
    "echo": ("echo", "echo_loss"),
    "distilled": ("distill", "ear", "loss"),
    "understood": ("understood", "ear", "loss"),
    "listener": ("listener", "listening", "loss"),
    "duration": ("duration",),
    "vocoder": ("vocoder", "vocoder_loss"),
}
OWN = {name for names in PARTS.values() for name in names}
# settings that mean nothing for a kind of model
TEACHERS = ("dit", "audio", "data.tokenizer", "data.vocab", "data.language")
NEVER_DROPPED = tuple(
    f"loss.{name}"
    for name in ("drop_audio", "drop_both", "prior", "duration", "model_guidance", "guidance_until")
)
UNUSED = {
    "duration": ("loss",),
    **{name: (*TEACHERS, *NEVER_DROPPED) for name in TAUGHT},
}


@dataclass(frozen=True)
class DataConfig:
    """Where samples come from and how they are batched."""

    shards: list = option((), "tar files: paths, folders, globs, {000..123} ranges or URLs")
    tokenizer: str = option("chars", "chars, bytes, phonemes, pinyin, echo or pieces")
    vocab: str | None = option(
        None, "vocab.txt of the characters, or tokenizer.json of pieces; others need none"
    )
    language: str = option(
        "",
        "of texts whose samples name none, such as de; und: several. Empty: English by its letters",
    )
    workers: int = option(0, "processes that decode, for each training process; 0: a thread")
    cache_mb: int = option(0, "memory for decoded mels, for each worker")
    batch_size: int = option(64, "most samples a batch, on each process")
    max_batch_frames: int = option(30_000, "most padded mel frames a batch, on each process")
    max_duration: int = option(937, "longest sample in mel frames, 93.75 a second")

    def __post_init__(self):
        object.__setattr__(self, "shards", tuple(self.shards))
        if self.tokenizer not in TOKENIZERS:
            raise InputError(
                f"data.tokenizer is {self.tokenizer!r}; choose from {', '.join(TOKENIZERS)}"
            )
        leasts = {"workers": 0, "cache_mb": 0, "batch_size": 1, "max_batch_frames": 1}
        for name, least in {**leasts, "max_duration": 1}.items():
            if getattr(self, name) < least:
                raise InputError(
                    f"data.{name} is {getattr(self, name)}, should be at least {least}"
                )


def section(default: type) -> Any:
    return field(default_factory=default)


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run. Running the same file again resumes the run."""

    model: str = option(
        "speech",
        "what is trained: speech, echo, distilled, understood, listener, duration or vocoder",
    )
    run_dir: str = option("runs/nanospeech", "where checkpoints, log.csv and samples go")
    initial: str | None = option(
        None,
        "release folder whose speech model, vocoder or student a fresh run starts from; its sizes "
        "are kept, but for dit.aligner_dim, prompt_dim and depth, which may grow",
    )
    keep_reading: bool = option(
        False,
        "leave what reads texts as initial has it, so that students of that model go on to fit",
    )
    teacher: str | None = option(
        None,
        "release folder whose speech model a distilled one, or one to be understood, learns of and"
        " starts as; or whose aligner places the tokens that a listener hears",
    )
    total_steps: int = option(100_000, "optimiser steps")
    warmup_steps: int = option(1000, "of them, until the rate is at its peak")
    save_step: int = option(10_000, "steps between checkpoints")
    mixed_precision: str | None = option(
        None, "no, bf16 or fp16; None: as accelerate was configured or launched"
    )
    data: DataConfig = section(DataConfig)
    audio: AudioConfig = section(AudioConfig)
    dit: DiTConfig = section(DiTConfig)
    duration: DurationConfig = section(DurationConfig)
    vocoder: VocoderConfig = section(VocoderConfig)
    listener: ListenerConfig = section(ListenerConfig)
    echo: EchoConfig = field(default_factory=lambda: EchoConfig(text_input=640))
    loss: LossConfig = section(LossConfig)
    distill: DistillConfig = section(DistillConfig)
    understood: UnderstoodConfig = section(UnderstoodConfig)
    ear: EarConfig = section(EarConfig)
    listening: ListeningConfig = section(ListeningConfig)
    echo_loss: EchoLossConfig = section(EchoLossConfig)
    vocoder_loss: VocoderLossConfig = section(VocoderLossConfig)
    optimizer: OptimizerConfig = section(OptimizerConfig)
    parallel: ParallelConfig = section(ParallelConfig)
    speed: SpeedConfig = section(SpeedConfig)
    train: TrainConfig = section(TrainConfig)
    log: LogConfig = section(LogConfig)

    def __post_init__(self):
        for name, known in (("model", MODELS), ("mixed_precision", (None, *PRECISIONS))):
            if getattr(self, name) not in known:
                choices = ", ".join(k for k in known if k)
                raise InputError(f"{name} is {getattr(self, name)!r}; choose from {choices}")
        if self.initial and self.model not in ("speech", "vocoder", "distilled"):
            kinds = "speech, vocoder and distilled"
            raise InputError(f"initial is for {kinds}, and model is {self.model}")
        if self.keep_reading and (self.model != "speech" or not self.initial):
            raise InputError(
                "keep_reading is for a speech model that starts from another: set initial=FOLDER"
            )
        if bool(self.teacher) != (self.model in TAUGHT):
            raise InputError(
                f"model is {self.model} and teacher {self.teacher!r}; a distilled model is made of"
                " a teacher, a release folder (--set teacher=FOLDER), and so is a listener and a"
                " model that learns to be understood; no other is"
            )
        if self.model == "understood" and not self.understood.listener:
            raise InputError(
                "understood.listener is not set; name the run folder of a listener, made by"
                " nanospeech train listener --set teacher=FOLDER"
            )
        tags = list(self.echo.text_tags) if self.model == "echo" else []
        if tags and self.data.tokenizer != "pieces":
            raise InputError(
                f"echo.text_tags is {tags}, which is for data.tokenizer=pieces, and it is"
                f" {self.data.tokenizer}"
            )
        if self.model == "vocoder" and self.log.held_out:
            raise InputError("log.held_out is not for vocoders; leave it empty")
        for name in ("total_steps", "save_step"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, should be at least 1")
        if self.warmup_steps < 0:
            raise InputError(f"warmup_steps is {self.warmup_steps}, should be at least 0")
        if self.train.ema_decay is not None and is_set(self.train, "ema_horizon"):
            raise InputError(
                f"train.ema_decay is {self.train.ema_decay} and train.ema_horizon"
                f" {self.train.ema_horizon}, and the first replaces the second; leave one out"
                " (--set train.ema_decay=null)"
            )
        if found := [name for name in UNUSED.get(self.model, ()) if is_set(self, name)]:
            why = "its clips are always paired, the first as the prompt of the second"
            if self.model in TAUGHT:
                why = "network, mels and tokens are its teacher's, and no conditions are dropped"
            raise InputError(
                f"{', '.join(found)} cannot be set where model is {self.model}: {why}; leave out"
                " what is set there"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the sections of other kinds of model."""
        values = dataclasses.asdict(self)
        for name in OWN - {*PARTS[self.model]}:
            del values[name]
        if self.model not in TAUGHT:
            del values["teacher"]
        return values


def is_set(config: Any, name: str) -> bool:
    """Whether a setting, dots between nested keys, differs from its default."""
    first, _, rest = name.partition(".")
    if rest:
        return is_set(getattr(config, first), rest)
    (field,) = (f for f in dataclasses.fields(config) if f.name == first)
    missing = field.default_factory is dataclasses.MISSING
    default = field.default if missing else field.default_factory()  # type: ignore[misc]
    return getattr(config, first) != default


SECTIONS: dict[str, type] = {
    f.name: f.default_factory  # type: ignore[misc]
    for f in dataclasses.fields(RunConfig)
    if f.default_factory is not dataclasses.MISSING
}
SECTIONS["echo"] = EchoConfig


def run_config(values: dict[str, Any], where: str = "config") -> RunConfig:
    """A RunConfig of a parsed YAML mapping.

    Raises:
        InputError: an unknown key, a wrong type or a value that makes no sense.
    """
    if not isinstance(values, dict):
        raise InputError(f"{where} should be a mapping, got {type(values).__name__}")
    fields = {f.name: f for f in dataclasses.fields(RunConfig)}
    if extra := sorted(values.keys() - fields.keys()):
        raise InputError(f"unknown keys {extra} in {where}; it may hold {sorted(fields)}")
    built: dict[str, Any] = {}
    try:
        for name, value in values.items():
            if name in SECTIONS:
                value = {} if value is None else value
                known = value if isinstance(value, dict) else {}  # from_dict refuses others
                files = {"data": "shards", "log": "held_out"}.get(name, "")
                if isinstance(known.get(files), str):  # one
                    value = {**value, files: [value[files]]}
                if name == "speed" and known.get("compile") is False:
                    value = {**value, "compile": "off"}  # which YAML takes for a boolean
                built[name] = from_dict(SECTIONS[name], value, name)
            else:
                if name == "mixed_precision" and value is False:
                    value = "no"  # so is this
                check_type(fields[name], value, "config")
                built[name] = value
        return RunConfig(**built)
    except CheckpointError as e:  # from_dict's, which is made for release folders
        raise InputError(str(e)) from e


def read_run(path: str | Path, changes: list[str] | None = None) -> RunConfig:
    """The run of a YAML file, with changes of the form KEY=VALUE, dots between nested keys.

    Raises:
        InputError: no such file, not a mapping, an unknown key or a malformed change.
    """
    yaml = require("yaml", "train")
    try:
        text = Path(path).read_text(encoding="utf-8")
        values = parse(yaml.load(text, bounded_loader(yaml)))
    except UnicodeDecodeError as e:
        raise InputError(f"{path} is not UTF-8 text: {e}; save it as UTF-8") from e
    except OSError as e:
        raise InputError(
            f"cannot read {path}: {reason(e)}; name a YAML file, or a recipe of nanospeech train"
            " --list"
        ) from e
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{path} is not YAML{where}: {getattr(e, 'problem', None) or e}") from e
    except RecursionError as e:
        raise InputError(
            f"{path} is nested too deeply; a run has sections of plain settings"
        ) from e
    except ValueError as e:  # of aliases
        raise InputError(f"cannot read {path}: {e}") from e
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise InputError(f"{path} should hold a mapping, got {type(values).__name__}")
    for name, section_class in SECTIONS.items():  # so that a change may have the newer name
        if isinstance(values.get(name), dict):
            values[name] = current_names(section_class, values[name], name)
    for change in changes or []:
        key, equals, value = change.partition("=")
        if not equals:
            raise InputError(f"--set {change!r} should be KEY=VALUE, as in optimizer.lr=2e-4")
        *parents, last = key.split(".")
        if len(parents) == 1 and parents[0] in SECTIONS:
            [last] = current_names(SECTIONS[parents[0]], {last: None}, f"--set {change}")
        inner = values
        for name in parents:
            if inner.get(name) is None:
                inner[name] = {}
            inner = inner[name]
            if not isinstance(inner, dict):
                raise InputError(f"--set {change!r}: {name} in {path} holds no further keys")
        try:
            inner[last] = parse(yaml.safe_load(value))
        except yaml.YAMLError as e:
            raise InputError(f"--set {change!r}: {e}") from e
    run = run_config(values, str(path))
    unused = set() if run.model in TAUGHT else OWN - {*PARTS[run.model]}  # those: see UNUSED
    for change in changes or []:
        if (name := change.partition(".")[0]) in unused:
            raise InputError(
                f"--set {change}: model is {run.model}, which does not use {name}; its own are"
                f" {', '.join(f'{part}.*' for part in PARTS[run.model])}"
            )
    return run


def parse(value: Any) -> Any:
    """Numbers such as 2e-4 and 1e6, which YAML 1.1 takes for text; whole ones fit counts too."""
    if isinstance(value, dict):
        return {k: parse(v) for k, v in value.items()}
    if isinstance(value, list):
        return [parse(v) for v in value]
    if isinstance(value, str) and value[:1] in "+-.0123456789" and "e" in value.lower():
        try:
            number = float(value)
            return int(number) if number.is_integer() else number
        except ValueError:
            pass
    return value
