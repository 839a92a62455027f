"""Architectures: the sizes and options of networks, and packed layers; sections of config.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from .bounds import DEEPEST, check_ranges, check_sizes, check_steps, check_transformer
from .errors import InputError
from .fields import option

UPSAMPLINGS = ("none", "average", "aligned")
POOLINGS = ("mean", "tokens")
PROMPTS = ("frames", "statistics")
BITS = (2, 3, 4, 5, 6, 8)  # of a packed weight
GROUP_SIZES = (32, 64, 128)


@dataclass(frozen=True)
class DiTConfig:
    """The speech model. Defaults are the published 82M one (F5-TTS, arXiv 2410.06885)."""

    dim: int = option(512, "width of the network")
    depth: int = option(18, "its blocks")
    heads: int = option(12, "attention heads of a block")
    dim_head: int = option(64, "width of a head")
    ff_mult: int = option(2, "width of the feed-forward layers, in widths of the network")
    text_dim: int = option(512, "width of the text embedding")
    conv_layers: int = option(4, "ConvNeXt-V2 blocks over the text")
    text_num_embeds: int = option(256, "tokens, without the filler; a run takes its vocabulary's")
    n_mels: int = option(100, "mel bands, as of audio")
    rope_heads: int = option(1, "heads that rotate; 1 for the published weights")
    qk_norm: bool = option(False, "RMSNorm on queries and keys, per head")
    text_upsampling: str = option(
        "none", "text over time: none, average (ZipVoice), aligned (Glow-TTS search)"
    )
    aligner_dim: int = option(
        0, "width of the aligner's speaker conditioning of each token; 0: none"
    )
    prompt_dim: int = option(
        0, "width of the features of a prompt whose statistics every block hears; 0: none"
    )
    max_strength: float = option(
        0.0,
        "greatest guidance strength of a distilled model, which has it and the solver's step as"
        " inputs; 0: the model is not distilled",
    )
    text_masking: bool = option(False, "keep the filler out of the text convolutions")
    patch_size: int = option(1, "mel frames per token")
    adaln_zero: bool = option(True, "start blocks as identities (DiT, arXiv 2212.09748)")
    dropout: float = option(0.1, "of attention and feed-forward, in training")
    # Options of F5-TTS's own checkpoints (SWivid/F5-TTS).
    output_biases: bool = option(False, "F5-TTS: of each attention's output and of the last layer")
    grn_all_frames: bool = option(
        False, "F5-TTS, with text_masking: GRN norms over all frames, not tokens alone"
    )
    null_text_places: bool = option(
        False,
        "F5-TTS, with text_masking: text that is left out is filler at its tokens' places, not zero"
        " everywhere",
    )
    text_positions: int = option(4096, "places of the text that differ")

    @property
    def edge(self) -> str:
        """Put before and after each text: a space for an aligned model, else nothing.

        The frames of silence at the ends are aligned to it, not to the first and last sound.
        """
        return " " if self.text_upsampling == "aligned" else ""

    def __post_init__(self):
        if self.text_upsampling not in UPSAMPLINGS:
            raise InputError(f"text_upsampling {self.text_upsampling!r}; choose from {UPSAMPLINGS}")
        check_transformer(self)
        check_sizes(self, "patch_size", "text_positions")
        if not 0 <= self.max_strength <= 100:
            raise InputError(f"max_strength is {self.max_strength}, should be 0 to 100")
        check_sizes(self, "prompt_dim", "aligner_dim", least=0)
        if self.aligner_dim and self.text_upsampling != "aligned":
            raise InputError(
                f"aligner_dim is {self.aligner_dim} with text_upsampling {self.text_upsampling!r}; "
                "choose 0, or with 'aligned' a width such as 256"
            )


@dataclass(frozen=True)
class DurationConfig:
    """The duration model. Defaults are the published one: (prompt mel, all text) -> seconds."""

    dim: int = option(512, "width of the network")
    depth: int = option(12, "its blocks")
    heads: int = option(8, "attention heads of a block")
    dim_head: int = option(64, "width of a head")
    ff_mult: int = option(2, "width of the feed-forward layers, in widths of the network")
    text_dim: int = option(512, "width of the text embedding")
    conv_layers: int = option(0, "ConvNeXt-V2 blocks over the text")
    text_num_embeds: int = option(256, "tokens, without the filler; a run takes its vocabulary's")
    n_mels: int = option(100, "mel bands, as of audio")
    rope_heads: int = option(1, "heads that rotate; 1 for the published weights")
    qk_norm: bool = option(False, "RMSNorm on queries and keys, per head")
    text_masking: bool = option(False, "keep the filler out of the text convolutions")
    dropout: float = option(0.1, "of attention and feed-forward, in training")
    pooling: str = option(
        "mean", "mean (published): one number for all; tokens: seconds of each token"
    )
    prompt: str = option(
        "frames", "frames (published) or statistics: what the network sees of the prompt"
    )
    edge: str = option("", "put before and after a text: a space for an aligned speech model")
    pace: float = option(
        0.0, "power by which token durations follow the prompt's pace, 0 to 1; with pooling tokens"
    )

    def __post_init__(self):
        check_transformer(self)
        if self.pooling not in POOLINGS:
            raise InputError(f"pooling {self.pooling!r}; choose from {POOLINGS}")
        if self.prompt not in PROMPTS:
            raise InputError(f"prompt {self.prompt!r}; choose from {PROMPTS}")
        if not 0 <= self.pace <= 1:
            raise InputError(f"pace is {self.pace}, should be 0 to 1")
        if self.pace and self.pooling != "tokens":
            raise InputError('pace is of token durations: it needs pooling "tokens"')


@dataclass(frozen=True)
class VocoderConfig:
    """Vocos (arXiv 2306.00814). Defaults are the published 24 kHz mel one."""

    dim: int = option(512, "width of the network")
    intermediate_dim: int = option(1536, "width within its blocks")
    num_layers: int = option(8, "its ConvNeXt blocks")
    n_mels: int = option(100, "mel bands, as of audio")
    n_fft: int = option(1024, "samples of a spectrum's window, as of audio")
    hop_length: int = option(256, "samples from one spectrum to the next, as of audio")
    griffin_lim_iters: int = option(
        0,
        "0: the phases are the network's own, as in Vocos; more: they are integrated from their"
        " derivatives, which it predicts, then improved by so many Griffin-Lim iterations",
    )
    mel_prior: bool = option(
        False,
        "magnitudes are corrections of the mel's pseudo-inverse (FreeV, arXiv 2406.08196), as they"
        " always are with griffin_lim_iters; false: the network's own, as in Vocos",
    )

    RENAMED: ClassVar[dict[str, str]] = {"rounds": "griffin_lim_iters"}

    def __post_init__(self):
        check_sizes(self, "dim", "intermediate_dim", "n_mels", "n_fft", "hop_length")
        check_sizes(self, "num_layers", most=DEEPEST)
        check_sizes(self, "griffin_lim_iters", least=0, most=1000)


@dataclass(frozen=True)
class ListenerConfig:
    """The listener, which tells from a mel what token is spoken in each patch (listener.py)."""

    dim: int = option(256, "width of the network")
    dilations: list[int] = option(
        (1, 2, 4, 1, 2, 4, 1, 2, 4, 1), "patches between the taps of each block's convolution"
    )
    tokens: int = option(256, "tokens that it tells apart; a run takes its teacher's")
    n_mels: int = option(100, "mel bands; a run takes its teacher's")
    patch_size: int = option(2, "mel frames of a patch; a run takes its teacher's")

    def __post_init__(self):
        object.__setattr__(self, "dilations", tuple(self.dilations))
        check_sizes(self, "dim", "tokens", "n_mels", "patch_size")
        if any(type(d) is not int or not 1 <= d <= 1024 for d in self.dilations):
            raise InputError(f"dilations are {list(self.dilations)}; choose 1 to 1024 for each")


@dataclass(frozen=True)
class PostfilterConfig:
    """Filters on mels before the vocoder (see audio/postfilter.py)."""

    smooth: float = 0.0  # weight of either neighbouring frame; 1/4 removes all flicker
    sharpen: float = 0.0  # strength of unsharp masking over bands

    def __post_init__(self):
        if not 0 <= self.smooth <= 0.5:
            raise InputError(f"smooth is {self.smooth}, should be 0 to 0.5")
        if not 0 <= self.sharpen <= 5:
            raise InputError(f"sharpen is {self.sharpen}, should be 0 to 5")


@dataclass(frozen=True)
class StudentConfig:
    """student.safetensors: the speech model distilled, which speaks where it was taught to.

    Voices' weights are added to it as to the model. In other voices, and by other solvers or steps,
    the model itself speaks; after recordings an imitator, where there is one, which may have a
    student of its own.
    """

    # Names of those that it was taught. Of a model that imitates: of recordings for which it speaks
    # where no steps are asked for; (): for all, but for one that begins.
    voices: tuple = ()
    max_strength: float = 5.0  # greatest guidance strength
    steps: int = 4  # of the solver when none are asked for
    step_counts: tuple = (4,)  # all that it was taught
    # Guidance with which it speaks where none is asked for, and how its teacher's was rescaled;
    # None: as the model's.
    cfg_strength: float | None = None
    cfg_rescale: float | None = None
    # Of its steps, how many it takes before the model itself goes on, where the model speaks and no
    # steps are asked for: a path bends most at its beginning.
    begins: int = 0

    def __post_init__(self):
        for name in ("voices", "step_counts"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if any(type(v) is not str for v in self.voices):
            raise InputError(f"voices are {self.voices}; name those that the student was taught")
        check_steps(self.steps, self.step_counts)
        if not 0 < self.max_strength <= 100:
            raise InputError(f"max_strength is {self.max_strength}; choose more than 0, up to 100")
        if self.cfg_strength is not None and not 0 <= self.cfg_strength <= self.max_strength:
            raise InputError(
                f"cfg_strength is {self.cfg_strength}; choose 0 to max_strength,"
                f" {self.max_strength:g}"
            )
        check_ranges(self, "cfg_rescale")
        if type(self.begins) is not int or not 0 <= self.begins < self.steps:
            raise InputError(
                f"begins is {self.begins!r}; choose 0 to {self.steps - 1} of the {self.steps} steps"
            )


@dataclass(frozen=True)
class QuantizationConfig:
    """Which layers' weights are packed into how many bits (see release/quantization.py).

    A layer is named as its weight, with * for the number of a block:
    "transformer.transformer_blocks.*.attn.to_q". All others are floats.
    """

    group_size: int = 64  # weights of a row that share a scale
    model: dict[str, int] = field(default_factory=dict)  # bits by layer
    student: dict[str, int] = field(default_factory=dict)
    duration: dict[str, int] = field(default_factory=dict)
    vocoder: dict[str, int] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[dict[str, int], ...]:
        """Bits by layer of each part."""
        return self.model, self.student, self.duration, self.vocoder

    def __post_init__(self):
        if self.group_size not in GROUP_SIZES:
            raise InputError(f"group_size is {self.group_size!r}; choose from {GROUP_SIZES}")
        for layers in self.parts:
            if bad := {k: v for k, v in layers.items() if v not in BITS or type(v) is not int}:
                raise InputError(f"bits of layers are {bad}; choose from {BITS}")
