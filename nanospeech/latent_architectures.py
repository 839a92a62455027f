"""Latent architectures: EchoDiT, its text encoders and codec, and how it is sampled.

Sections of config.json of models of latents; architectures.py has those of mels.
"""

from __future__ import annotations

from dataclasses import dataclass

from .bounds import DEEPEST, LARGEST, check_sizes
from .errors import InputError
from .fields import option

TEXT_ENCODERS = ("t5", "t5gemma", "t5gemma2")
CODECS = ("dacvae",)
TEXT_TAG = 1 << 24  # id of the first of EchoConfig.text_tags; no encoder has so many tokens


@dataclass(frozen=True)
class EchoConfig:
    """EchoDiT: latents by joint attention to themselves, a text and a speaker (Echo-TTS).

    Defaults are scaled-echo's 800M model. Irodori has no 'speaker_causal', but zero_masked and
    speaker_mean; Echo-TTS has a latent of 80 and its own text encoder.
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
    max_speaker: int = option(384, "most latents of a recording of the speaker, in training")

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

    @property
    def takes_length(self) -> bool:
        """Whether it speaks as long as it is asked to: by seconds, or by its tokens' places."""
        return self.target_duration or self.text_rotary or self.text_window > 0


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
