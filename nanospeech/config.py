"""Config: what a model is and how it is sampled. Each default is written here, once."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

from .architectures import (
    DiTConfig,
    DurationConfig,
    PostfilterConfig,
    QuantizationConfig,
    StudentConfig,
    VocoderConfig,
)
from .arguments import number, whole
from .bounds import check_groups, check_ranges, check_sizes, check_steps
from .errors import CheckpointError, InputError, reason
from .fields import check_type, current_names, option
from .latent_architectures import TEXT_TAG, CodecConfig, EchoConfig, EchoOptions, TextEncoderConfig

T = TypeVar("T")
log = logging.getLogger("nanospeech")

Method = Literal["euler", "midpoint", "rk4"]
Schedule = Literal["epss", "uniform"]
Guidance = Literal["cfg", "cfg-zero"]
METHODS, SCHEDULES, GUIDANCES = get_args(Method), get_args(Schedule), get_args(Guidance)
RULES = ("nanospeech", "f5")
STEPS = 7  # of the solver, for models that were not made for another number
MAX_FRAME_RATE = 1000  # frames of a mel a second; more of them would take hours and all memory
NEWER = "; if a newer nanospeech wrote them: pip install --upgrade nanospeech-tts"
TOKENIZERS = ("chars", "bytes", "phonemes", "pinyin", "echo", "pieces")


def from_dict(cls: type[T], values: dict[str, Any], where: str = "config", advice: str = "") -> T:
    """Builds a config dataclass strictly: unknown keys and wrong types are errors.

    The names that keys had in older versions (RENAMED of the class) are read as the new ones.

    Args:
        cls: one of the dataclasses below.
        values: the parsed JSON or YAML mapping.
        where: what to call the source in an error.
        advice: what to do about unknown keys.

    Raises:
        CheckpointError: a key is unknown, or a value has the wrong type.
    """
    if not isinstance(values, dict):
        raise CheckpointError(f"{where} should be a mapping, got {type(values).__name__}")
    values = current_names(cls, values, where)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if extra := sorted(values.keys() - fields.keys()):
        if cls is ModelConfig and ("model_type" in extra or len(extra) == len(values) > 2):
            raise CheckpointError(
                f"{where} is of another project's model, as it has {extra[0]}; nanospeech convert"
                " --help tells which can be converted"
            )
        may = sorted(fields)
        raise CheckpointError(f"unknown keys {extra} in {where}; it may hold {may}{advice}")
    built = {}
    for name, value in values.items():
        inner = SECTIONS.get(name) if cls is ModelConfig else None
        if inner and value is not None:
            value = from_dict(inner, value, f"{where}.{name}", advice)
        else:
            check_type(fields[name], value, where)
        built[name] = value
    try:
        made = cls(**built)
        if isinstance(made, (DiTConfig, DurationConfig)):
            check_groups(made)
        return made  # type: ignore[return-value]
    except (InputError, TypeError) as e:
        told = str(e) if str(e).startswith(f"{where}.") else f"{where}: {e}"  # it names itself
        raise CheckpointError(told) from e


def to_dict(config: Any) -> dict[str, Any]:
    """The plain mapping that from_dict reads back."""
    return dataclasses.asdict(config)


@dataclass(frozen=True)
class AudioConfig:
    """Parameters of mel spectrograms; audio/mel.py computes them."""

    sample_rate: int = option(24_000, "samples a second")
    n_fft: int = option(1024, "samples of a spectrum's window")
    hop_length: int = option(256, "samples from one mel frame to the next")
    n_mels: int = option(100, "mel bands")
    mel_mean: float = option(
        0.0, "the network sees (log mel - mel_mean) / mel_std; 0 and 1 for the published weights"
    )
    mel_std: float = option(1.0, "see mel_mean; `nanospeech prepare levels` measures both")
    prompt_rms: float | None = option(
        None,
        "root mean square that prompts are scaled to, that of the training data; None only scales"
        " quiet ones up, to F5-TTS's 0.1",
    )

    def __post_init__(self):
        check_sizes(self, "sample_rate", least=1000, most=384_000)
        check_sizes(self, "n_fft", "hop_length", "n_mels")
        if self.frame_rate > MAX_FRAME_RATE:
            raise InputError(
                f"hop_length is {self.hop_length} at {self.sample_rate} Hz; choose one of at most"
                f" {MAX_FRAME_RATE} frames a second"
            )
        if not abs(self.mel_mean) <= 1000 or not 0 < self.mel_std <= 1000:
            raise InputError(
                f"mel_mean is {self.mel_mean} and mel_std {self.mel_std}; choose up to 1000, and a"
                " mel_std of more than 0"
            )
        if self.prompt_rms is not None and not 0 < self.prompt_rms <= 1:
            raise InputError(f"prompt_rms is {self.prompt_rms}; choose more than 0, up to 1")

    @property
    def frame_rate(self) -> float:
        """Mel frames per second: 93.75."""
        return self.sample_rate / self.hop_length


@dataclass(frozen=True)
class ModelConfig:
    """A release folder's config.json."""

    name: str = "nanospeech"
    tokenizer: str = "chars"
    audio: AudioConfig = AudioConfig()
    dit: DiTConfig = DiTConfig()
    duration: DurationConfig | None = None
    vocoder: VocoderConfig | None = None
    default_voice: str | None = None
    # Of the texts, such as "de"; "und" for several, each of which is named when it is spoken. "":
    # unknown, English if the vocabulary has its letters and no digits.
    language: str = ""
    # Guidance strength when none is asked for; 0 for models that learnt their guidance
    # (loss.model_guidance, arXiv 2502.12154).
    cfg_strength: float = 3.0
    # Share of guidance's overshoot that is taken back when none is asked for (arXiv 2305.08891)
    cfg_rescale: float = 0.0
    steps: int = STEPS  # of the solver when none are asked for
    step_counts: tuple = ()  # those that a distilled model was made for; (): any
    # Standard deviation of the initial noise when none is asked for (Glow-TTS, arXiv 2005.11129,
    # section 5.1)
    temperature: float = 1.0
    # Seconds of a pause before texts of a word or two; a small model slurs their first sound when
    # it follows the prompt directly.
    leading_pause: float = 0.0
    postfilter: PostfilterConfig | None = None
    quantization: QuantizationConfig | None = None
    # The speech model is an EchoDiT, and `dit` stands for nothing. Where there is a codec, its
    # rate, hop and width of latents are `audio`'s sample_rate, hop_length and n_mels.
    echo: EchoConfig | None = None
    echo_sampling: EchoOptions | None = None
    student: StudentConfig | None = None
    # The folder imitator/ holds a model that speaks in the voice of recordings. It has neither
    # vocoder nor duration model of its own.
    imitator: bool = False
    codec: CodecConfig | None = None
    text_encoder: TextEncoderConfig | None = None
    # Whether it imitates any recording (--ref-audio). None: unknown. False: it speaks only in the
    # voices that it was trained on, and another recording gets a warning.
    imitates: bool | None = None
    # "mp3": the recordings of training were such (audio/mp3.py); one that is no voice of the folder
    # is encoded and decoded likewise, for what else it has above 9 kHz the model has never heard.
    # None: as it is.
    prompt_codec: str | None = None
    # Whether the recordings of training had the whole band: one to imitate that has not gets what
    # it lacks from what it has (audio/narrow.py). For 100 bands at 24 kHz.
    prompt_widen: bool = False
    licence: str | None = None  # identifier of the weights' licence, where it is known
    # How a recording becomes a prompt, how long new speech lasts, and which counts of steps have a
    # grid of EPSS: "f5" as in F5-TTS, for its checkpoints.
    rules: str = "nanospeech"

    RENAMED: ClassVar[dict[str, str]] = {"lead": "leading_pause"}

    def __post_init__(self):
        object.__setattr__(self, "step_counts", tuple(self.step_counts))
        check_steps(self.steps, self.step_counts)
        check_ranges(self, "cfg_strength", "cfg_rescale", "temperature")
        if not 0 <= self.leading_pause <= 1:
            raise InputError(f"leading_pause is {self.leading_pause} s, should be 0 to 1")
        if self.prompt_codec not in (None, "mp3"):
            raise InputError(f"prompt_codec is {self.prompt_codec!r}, should be mp3 or null")
        if self.prompt_codec and self.audio.sample_rate != 24_000:
            raise InputError(f"prompt_codec is for 24 kHz, and this is {self.audio.sample_rate} Hz")
        a, known = self.audio, AudioConfig()
        if self.prompt_widen and (a.sample_rate, a.n_fft, a.n_mels) != (
            known.sample_rate,
            known.n_fft,
            known.n_mels,
        ):
            raise InputError(
                f"prompt_widen is for {known.n_mels} bands of windows of {known.n_fft} at"
                f" {known.sample_rate} Hz, and these are {a.n_mels} of {a.n_fft} at {a.sample_rate}"
            )
        if self.tokenizer not in TOKENIZERS:
            raise InputError(f"tokenizer {self.tokenizer!r}; choose from {TOKENIZERS}")
        if self.student and not self.student.voices and not self.imitates:
            raise InputError("student.voices is empty; name those that it was taught")
        if self.rules not in RULES:
            raise InputError(f"rules {self.rules!r}; choose from {RULES}")

    @property
    def takes_recordings(self) -> bool:
        """Whether it speaks in the voice of any recording, as far as is known."""
        return self.imitates is not False or self.imitator

    @property
    def hears_alone(self) -> bool:
        """Whether it can speak in the voice of a recording whose words it does not know."""
        return self.echo is not None or self.dit.text_upsampling == "aligned"

    def as_student(self) -> ModelConfig:
        """The config of the folder's student."""
        if self.student is None:
            raise InputError(f"{self.name} has no student")
        s = self.student
        dit = dataclasses.replace(self.dit, max_strength=s.max_strength)
        guidance = {
            n: v for n in ("cfg_strength", "cfg_rescale") if (v := getattr(s, n)) is not None
        }
        return dataclasses.replace(
            self, dit=dit, steps=s.steps, step_counts=s.step_counts, student=None, **guidance
        )

    def as_imitator(self, own: ModelConfig) -> ModelConfig:
        """The config of the folder's imitator.

        Args:
            own: in the imitator's folder.

        Raises:
            InputError: its mels or its kind are not this model's.
        """
        mine, its = (
            (a.sample_rate, a.n_fft, a.hop_length, a.n_mels) for a in (self.audio, own.audio)
        )
        if mine != its or self.echo or own.echo:
            raise InputError(f"{self.name} and its imitator {own.name} make different mels")
        return dataclasses.replace(
            own,
            duration=None,
            vocoder=self.vocoder,
            default_voice=None,
            imitator=False,
            imitates=True,
            licence=own.licence or self.licence,
        )

    @property
    def text_count(self) -> int:
        """Ids that the speech model knows; another encoder has its own below those of tags."""
        if self.echo and self.echo.text_input:
            return TEXT_TAG + len(self.echo.text_tags)
        return self.echo.text_vocab if self.echo else self.dit.text_num_embeds

    def chosen(self, options: SampleOptions, name: str) -> float:
        """A cfg_strength, cfg_rescale, temperature or steps: what is asked for, else the own."""
        asked = getattr(options, name)
        return getattr(self, name) if asked is None else asked

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(to_dict(self), indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> ModelConfig:
        """Reads config.json.

        Raises:
            CheckpointError: it is not JSON, or not this config.
        """
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            raise CheckpointError(f"cannot read {path}: {reason(e)}") from e
        return from_dict(ModelConfig, values, str(path), NEWER)


SECTIONS: dict[str, type] = {
    "audio": AudioConfig,
    "dit": DiTConfig,
    "duration": DurationConfig,
    "vocoder": VocoderConfig,
    "postfilter": PostfilterConfig,
    "quantization": QuantizationConfig,
    "echo": EchoConfig,
    "echo_sampling": EchoOptions,
    "student": StudentConfig,
    "codec": CodecConfig,
    "text_encoder": TextEncoderConfig,
}


@dataclass(frozen=True)
class SampleOptions:
    """How the ODE is solved."""

    method: Method = option(
        "euler", "solver: a step of euler evaluates the network once, of midpoint twice, of rk4 4x"
    )
    steps: int | None = option(None, "solver steps; more is slower and finer")
    cfg_strength: float | None = option(
        None, "guidance strength: more is clearer and less varied; 0 is off and twice as fast"
    )
    sway_sampling_coef: float | None = option(
        -1.0, "sway of the time grid; < 0 favours early times"
    )
    schedule: Schedule = option("epss", "time grid before sway: epss or uniform")
    guidance: Guidance = option(
        "cfg", "cfg, or cfg-zero: first fit the size of the unconditional velocity (CFG-Zero*)"
    )
    zero_init: int = option(
        0, "first steps to skip, as early velocities are least accurate: 0, 1 or 2 (CFG-Zero*: 1)"
    )
    cfg_from: float = option(
        0.0, "guide from this time on (0 is noise, 1 speech); a step without costs half"
    )
    cfg_until: float = option(1.0, "guide up to this time; beyond it a step costs half")
    cfg_rescale: float | None = option(
        None,
        "share of guidance's overshoot to take back: 1 keeps the spread of a mel without guidance,"
        " 0 is off",
    )
    temperature: float | None = option(
        None, "standard deviation of the initial noise: below 1 is clearer and less varied"
    )

    def __post_init__(self):
        for f in dataclasses.fields(self):
            value, kind = getattr(self, f.name), str(f.type)
            if kind.startswith(("int", "float")) and not (value is None and "None" in kind):
                number(f.name, value)
        if self.method not in METHODS:
            raise InputError(f"method {self.method!r} not known; choose from {', '.join(METHODS)}")
        if self.schedule not in SCHEDULES:
            raise InputError(
                f"schedule {self.schedule!r} not known; choose from {', '.join(SCHEDULES)}"
            )
        if self.steps is not None and not (1 <= self.steps <= 1000 and self.steps % 1 == 0):
            raise InputError(f"steps is {self.steps}; choose 1 to 1000, a whole number")
        if self.guidance not in GUIDANCES:
            raise InputError(
                f"guidance {self.guidance!r} not known; choose from {', '.join(GUIDANCES)}"
            )
        steps = STEPS if self.steps is None else self.steps
        if not 0 <= self.zero_init <= min(2, steps - 1):
            raise InputError(
                f"zero_init is {self.zero_init} of {steps} steps; choose 0 to"
                f" {min(2, steps - 1)}: a step at least must move"
            )
        if not 0 <= self.cfg_from <= self.cfg_until <= 1:
            raise InputError(
                f"cfg_from is {self.cfg_from} and cfg_until {self.cfg_until}; choose times with"
                " 0 <= cfg_from <= cfg_until <= 1"
            )
        check_ranges(self, "cfg_strength", "cfg_rescale", "temperature")
        if self.sway_sampling_coef is not None and not -1 <= self.sway_sampling_coef <= 2 / (
            math.pi - 2
        ):
            # beyond 2 / (pi - 2) the grid runs backwards (F5-TTS, section 3.3)
            raise InputError(f"sway_sampling_coef is {self.sway_sampling_coef}; choose -1 to 1.75")


@dataclass(frozen=True)
class BatchLimits:
    """Limits of a batch, which bound its memory."""

    items: int = option(16, "most chunks of text in a batch")
    frames: int = option(16_384, "most mel frames in a batch, prompts and padding included")

    def __post_init__(self):
        for name in ("items", "frames"):
            count = whole(f"{name} of a batch", getattr(self, name))
            if count < 1:
                raise InputError(f"{name} of a batch are {count}; choose 1 or more")
            object.__setattr__(self, name, count)
