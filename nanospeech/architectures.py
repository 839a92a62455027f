"""Architectures: the sizes and options of networks, and packed layers; sections of config.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from .bounds import DEEPEST, LARGEST, check_ranges, check_sizes, check_steps, check_transformer
from .errors import InputError
from .fields import option

UPSAMPLINGS = ("none", "average", "aligned")
POOLINGS = ("mean", "tokens")
PROMPTS = ("frames", "statistics")
TEXT_ENCODERS = ("t5", "t5gemma", "t5gemma2")
CODECS = ("dacvae",)
BITS = (2, 3, 4, 5, 6, 8)  # of a packed weight
GROUP_SIZES = (32, 64, 128)
TEXT_TAG = 1 << 24  # id of the first of EchoConfig.text_tags; no encoder has so many tokens


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
class EchoConfig:
    """EchoDiT: latents by joint attention to themselves, a text and a speaker (Echo-TTS).

    Defaults are scaled-echo's 800M model. Irodori has no 'speaker_causal', a speaker_scale of 1,
    zero_masked and speaker_mean; Echo-TTS has a latent of 80 and its own text encoder.
    """

    latent_dim: int = option(128, "numbers of a latent; mel bands where latents are mels")
    latent_patch: int = option(1, "latents that the network reads and writes as one")
    dim: int = option(1280, "width of the network")
    depth: int = option(24, "its blocks")
    heads: int = option(10, "attention heads of a block; half of them rotate")
    ff_dim: int = option(3520, "width of its feed-forward layers")
    text_vocab: int = option(256, "ids of its own text encoder; bytes")
    text_dim: int = option(768, "width of the text states")
    text_depth: int = option(0, "blocks of its own text encoder; 0: states come from outside of it")
    text_heads: int = option(6, "attention heads of its own text encoder")
    text_ff_dim: int = option(2112, "width of its own text encoder's feed-forward layers")
    text_input: int = option(
        0, "width of states from outside, which a dense layer projects to text_dim; 0: none"
    )
    text_tags: list[str] = option(  # type: ignore[assignment]
        (),
        "tags in texts, such as <laugh>, which the encoder outside does not read: each has a state"
        " among the encoder's, a learnt vector beside the state of what comes before it",
    )
    speaker_patch: int = option(4, "latents that the speaker encoder reads as one")
    speaker_dim: int = option(768, "width of the speaker encoder")
    speaker_depth: int = option(8, "its blocks")
    speaker_heads: int = option(6, "its attention heads")
    speaker_ff_dim: int = option(2112, "width of its feed-forward layers")
    speaker_causal: bool = option(True, "each patch sees those before it alone, and no mask")
    speaker_scale: float = option(6.0, "divisor of the speaker encoder's input")
    speaker_mean: bool = option(False, "the mean state goes before the others")
    zero_masked: bool = option(
        False, "encoders' states behind an item's end are zero after each block"
    )
    continues: bool = option(False, "a third encoder, of the latents before a block of them")
    target_duration: bool = option(False, "seconds of speech as a condition, beside the time")
    text_rotary: bool = option(
        False, "text keys rotate too, their places spread over the speech's (arXiv 2509.11084)"
    )
    text_window: float = option(
        0.0,
        "patches; half of the heads see the text through a window of this standard deviation around"
        " each patch, tokens' places being by durations that the network predicts; 0: no window",
    )
    predicts_speech: bool = option(
        False,
        "the last layer's output is the speech, from which the velocity follows (arXiv"
        " 2511.13720): for patches of more numbers than the network is wide",
    )
    time_dim: int = option(512, "width of the time's embedding")
    adaln_rank: int = option(256, "rank of the scales and shifts by the time")
    eps: float = option(1e-5, "of the norms")
    max_latents: int = option(768, "most latents of speech in training, and in a sample")
    max_text: int = option(192, "most tokens of a text")
    max_speaker: int = option(384, "most latents of a recording of the speaker")

    def __post_init__(self):
        widths = ("dim", "ff_dim", "text_dim", "text_ff_dim", "speaker_dim", "speaker_ff_dim")
        check_sizes(self, *widths, "latent_dim", "text_vocab", "time_dim", "adaln_rank")
        check_sizes(self, "latent_patch", "speaker_patch", most=DEEPEST)
        check_sizes(self, "max_latents", "max_text", "max_speaker")
        check_sizes(self, "heads", "text_heads", "speaker_heads", most=DEEPEST)
        check_sizes(self, "depth", "text_depth", "speaker_depth", least=0, most=DEEPEST)
        check_sizes(self, "text_input", least=0)
        if not 0 < self.speaker_scale <= 1000 or not 0 < self.eps < 1:
            raise InputError(
                f"speaker_scale is {self.speaker_scale} and eps {self.eps}; choose more than 0, up"
                " to 1000 and below 1"
            )
        for part in ("", "text_", "speaker_"):
            heads, dim = getattr(self, f"{part}heads"), getattr(self, f"{part}dim")
            if dim % heads or dim // heads % 2:
                raise InputError(
                    f"{part}dim is {dim} and {part}heads {heads}; choose a width that is an even"
                    " multiple of the heads"
                )
        if self.heads % 2:
            raise InputError(f"heads is {self.heads}; half of them rotate: choose an even number")
        if (self.text_depth > 0) == (self.text_input > 0):
            raise InputError(
                f"text_depth is {self.text_depth} and text_input {self.text_input}; choose blocks"
                " of its own, or the width of another encoder's states, and 0 for the other"
            )
        object.__setattr__(self, "text_tags", tuple(self.text_tags))
        if any(type(tag) is not str for tag in self.text_tags) or (
            len(set(self.text_tags)) < len(self.text_tags)
        ):
            raise InputError(f"text_tags is {list(self.text_tags)}; name each tag once")
        if self.text_tags and not self.text_input:
            raise InputError(
                f"text_tags is {list(self.text_tags)}; they are for networks that read another"
                " encoder's states (text_input): put them into the vocabulary of this one"
            )
        if not 0 <= self.text_window <= LARGEST or (
            self.text_window and (self.continues or not self.text_depth)
        ):
            raise InputError(
                f"text_window is {self.text_window}; choose more than 0 for a network that reads"
                " tokens by itself (text_depth) and continues nothing, else 0"
            )
        if self.continues and self.latent_patch > 1:
            raise InputError("a network that continues has a latent_patch of 1")


@dataclass(frozen=True)
class TextEncoderConfig:
    """The encoder of T5, T5Gemma or T5Gemma 2, whose states a speech model reads.

    Attributes:
        kind: of TEXT_ENCODERS.
        folder: its folder within the release, with config.json, model.safetensors, tokenizer.json.
        frozen: whether it was left as published.
    """

    kind: str = "t5gemma2"
    folder: str = "text_encoder"
    frozen: bool = True

    def __post_init__(self):
        if self.kind not in TEXT_ENCODERS:
            raise InputError(f"kind {self.kind!r}; choose from {', '.join(TEXT_ENCODERS)}")
        if not self.folder or "/" in self.folder or "\\" in self.folder or ".." in self.folder:
            raise InputError(f"folder is {self.folder!r}; choose a name within the release folder")


@dataclass(frozen=True)
class CodecConfig:
    """DAC-VAE (facebookresearch/dacvae). Defaults are the published one: 48 kHz, 25 Hz."""

    kind: str = "dacvae"
    sample_rate: int = 48_000
    encoder_dim: int = 64
    encoder_rates: list[int] = (2, 8, 10, 12)  # type: ignore[assignment]
    hidden_dim: int = 1024
    decoder_dim: int = 1536
    decoder_rates: list[int] = (12, 10, 8, 2)  # type: ignore[assignment]
    latent_dim: int = 128

    def __post_init__(self):
        check_sizes(self, "sample_rate", "encoder_dim", "hidden_dim", "decoder_dim", "latent_dim")
        for name in ("encoder_rates", "decoder_rates"):
            rates = getattr(self, name)
            # kernels are twice a stride: with one of 1 waves would not keep their length
            odd = any(type(r) is not int or not 2 <= r <= 64 for r in rates)
            if not 1 <= len(rates) <= 8 or odd:
                raise InputError(f"{name} is {rates}; choose up to 8 strides of 2 to 64")
            object.__setattr__(self, name, tuple(rates))
        if self.decoder_dim < 2 ** len(self.decoder_rates):
            raise InputError(
                f"decoder_dim is {self.decoder_dim}; each of {len(self.decoder_rates)} strides"
                " halves it"
            )
        if self.kind not in CODECS:
            raise InputError(f"kind {self.kind!r}; choose from {', '.join(CODECS)}")

    @property
    def hop_length(self) -> int:
        """Samples of a latent: 1920."""
        hop = 1
        for rate in self.decoder_rates:
            hop *= rate
        return hop

    @property
    def frame_rate(self) -> float:
        """Latents per second: 25."""
        return self.sample_rate / self.hop_length


@dataclass(frozen=True)
class EchoOptions:
    """How an EchoDiT is sampled, by Euler steps from noise (time 1) to speech (time 0)."""

    steps: int = 40
    cfg_text: float = 3.0  # guidance towards the text; 0 is off
    cfg_speaker: float = 5.0  # guidance towards the speaker, apart from the text's
    joint: bool = False  # guide away from neither text nor speaker, by cfg_text alone
    cfg_min_t: float = 0.5  # guidance is for times from here
    cfg_max_t: float = 1.0  # to here
    truncation: float = 1.0  # standard deviation of the noise
    rescale_k: float | None = None  # temporal score rescaling (arXiv 2510.01184); Echo: 1.2
    rescale_sigma: float = 3.0
    speaker_kv_scale: float | None = None  # factor of the speaker's keys and values; Echo: 1.5
    speaker_kv_layers: int | None = None  # in so many first blocks; None: in all
    speaker_kv_min_t: float = 0.0  # until the time falls below this

    def __post_init__(self):
        check_sizes(self, "steps", most=1000)
        for name in ("cfg_text", "cfg_speaker"):
            if not 0 <= getattr(self, name) <= 100:
                raise InputError(f"{name} is {getattr(self, name)}; choose 0 to 100")
        if not 0 <= self.truncation <= 2:
            raise InputError(f"truncation is {self.truncation}; choose 0 to 2")
        for name in ("rescale_k", "rescale_sigma", "speaker_kv_scale"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 100:
                raise InputError(f"{name} is {value}; choose more than 0, up to 100")


@dataclass(frozen=True)
class StudentConfig:
    """student.safetensors: the speech model distilled, which speaks where it was taught to.

    Voices' weights are added to it as to the model. In other voices, and by other solvers or steps,
    the model itself speaks; after recordings an imitator, where there is one, which may have a
    student of its own.
    """

    # Names of those that it was taught. Of a model that imitates: of recordings for which it speaks
    # where no steps are asked for; (): for all.
    voices: tuple = ()
    max_strength: float = 5.0  # greatest guidance strength
    steps: int = 4  # of the solver when none are asked for
    step_counts: tuple = (4,)  # all that it was taught
    # Guidance with which it speaks where none is asked for, and how its teacher's was rescaled;
    # None: as the model's.
    cfg_strength: float | None = None
    cfg_rescale: float | None = None

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
