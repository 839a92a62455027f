"""Flow: the training losses of the speech and the duration model. No optimiser, no data.

All random numbers of a step are part of the batch (see data/speech.py), so a loss depends on its
arguments and the weights alone, and a resumed run repeats an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from nanospeech.config import AudioConfig, option
from nanospeech.errors import CheckpointError, InputError
from nanospeech_torch import layers
from nanospeech_torch.dit import DiT
from nanospeech_torch.duration import DurationHead, DurationTransformer

from .alignment import monotonic_search
from .placing import average_path, earlier, later, patch_means


@dataclass(frozen=True)
class LossConfig:
    """Masking, dropout of conditions and augmentation in training, and weights of losses."""

    drop_audio: float = option(0.3, "chance that a sample's audio condition is dropped")
    drop_both: float = option(0.2, "chance that audio and text are dropped (for guidance)")
    min_span: float = option(0.7, "smallest share of a clip that is masked, and trained on")
    max_span: float = option(1.0, "largest share of a clip that is masked")
    spell: float = option(0.1, "chance that a known word is spelled in letters (phonemes only)")
    pair: float = option(
        0.5, "chance that a clip is joined to another of its speaker, which is its prompt"
    )
    warp: float = option(
        0.0,
        "stretches the frequencies of half of the clips and pairs by up to this "
        "share, as other speakers; for data of few speakers, 0.15",
    )
    colour: float = option(
        0.0,
        "half of the clips and pairs are heard through a smooth random equaliser of about so many "
        "nats, as other speakers and microphones; for data of few speakers, 0.4",
    )
    prior: float = option(1.0, "weight of the aligner's mean loss")
    duration: float = option(0.1, "weight of the aligner's duration loss")
    model_guidance: float = option(
        0.0, "weight of the averaged model's guidance in the targets; 0.5 in the paper"
    )
    guidance_until: float = option(0.75, "time in [0, 1] from which targets have no guidance")

    def __post_init__(self):
        if not 0 <= self.warp <= 0.5:
            raise InputError(f"loss.warp is {self.warp}; choose 0 to 0.5")
        if not 0 <= self.colour <= 2:
            raise InputError(f"loss.colour is {self.colour}; choose 0 to 2, best 0.4")
        if not 0 <= self.model_guidance < 1:
            # targets feed back through the average and diverge at 1 and beyond
            raise InputError(f"loss.model_guidance is {self.model_guidance}; choose 0 to below 1")


class Tensors:
    """A dataclass of tensors that move together."""

    def to(self, device: torch.device | str) -> Any:
        """The same on a device."""
        return type(self)(**{k: v.to(device, non_blocking=True) for k, v in vars(self).items()})

    def pin_memory(self) -> Any:
        """The same in page-locked memory, from where it is copied while the device works."""
        return type(self)(**{k: v.pin_memory() for k, v in vars(self).items()})


@dataclass
class Batch(Tensors):
    """One padded batch with its draws; tensors are on one device.

    mel_BNM log mel, zero past lens_B; text_BT ids padded with -1; noise_BNM standard normal;
    time_B in [0, 1]; span_BN true in the frames that are trained on; drop_audio_B and drop_text_B;
    prompt_B frames that a duration model sees; wordless_B frames of a reference before the clip
    whose words are not in the text, 0 without one.
    """

    mel: Tensor
    lens: Tensor
    text: Tensor
    noise: Tensor
    time: Tensor
    span: Tensor
    drop_audio: Tensor
    drop_text: Tensor
    prompt: Tensor
    wordless: Tensor = None  # type: ignore[assignment]

    def __post_init__(self):
        if self.wordless is None:
            self.wordless = torch.zeros_like(self.lens)


@dataclass
class DurationBatch(Tensors):
    """The inputs of a duration model, padded; tensors are on one device.

    mel_BNM log mel of the prompts, zero past prompt_B; lens_B frames of prompt and new speech, of
    the new speech alone where the prompt's words are not known; text_BT ids of both, padded with
    -1; known_B of them the prompt's, 0 where the prompt is part of the clip or its words are
    missing.
    """

    mel: Tensor
    lens: Tensor
    text: Tensor
    prompt: Tensor
    known: Tensor


# name of a loss -> (sum over its elements, number of elements); the trainer divides, after adding
# up both over processes, so that two processes give the loss of one with the same global batch
Sums = dict[str, tuple[Tensor, Tensor]]


class Objective(nn.Module):
    """The training loop's interface to a model; defaults are for one optimiser and no state."""

    def phases(self) -> dict[str, list[nn.Parameter]]:
        """The parameters that each pass over a batch trains; one unnamed pass here."""
        return {"": [p for p in self.parameters() if p.requires_grad]}

    def averaged(self) -> nn.Module:
        """What the average follows."""
        return self

    def begin_step(self, step: int, total: float) -> None:
        """Called before each optimiser step."""

    def multiple(self) -> int:
        """Frames that padded lengths are multiples of: 8 places of the network."""
        transformer = getattr(self, "transformer", None)
        return 8 * getattr(getattr(transformer, "config", None), "patch_size", 1)


class Nanospeech(Objective):
    """The speech model with its flow-matching loss (arXiv 2210.02747; F5-TTS, arXiv 2410.06885).

    Args:
        transformer: the network.
        tokenizer: nanospeech.text.tokenizer.Tokenizer, or a function of a list of texts that
        returns ids (B, T) padded with -1; the trainer's data loader calls it.
        audio: the mel and its normalisation.
        loss: drop chances and loss weights.
    """

    def __init__(
        self,
        transformer: DiT,
        tokenizer: Callable | object | None = None,
        audio: AudioConfig | None = None,
        loss: LossConfig | None = None,
    ):
        super().__init__()
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.audio = audio or AudioConfig()
        self.loss = loss or LossConfig()
        self.guide: tuple[DiT, ...] = ()  # in a tuple: not a part of this model

    def guide_with(self, ema: dict[str, Tensor]) -> None:
        """Sets the averaged model whose guidance is added to the targets (loss.model_guidance).

        Args:
            ema: averaged parameters by their names here, whole on this device. They are not copied,
                so that later updates in place take effect.

        Raises:
            InputError: they are sharded.
            CheckpointError: they are of another model.
        """
        if any(hasattr(p, "to_local") for p in ema.values()):
            raise InputError(
                "loss.model_guidance needs whole weights in each process, these are sharded; train "
                "with data parallelism alone (DDP) or set loss.model_guidance=0"
            )
        with torch.device("meta"):
            # a new one: the live model may be compiled or have adapters
            guide = DiT(self.transformer.config)
        part = {k.removeprefix("transformer."): v for k, v in ema.items()}
        try:
            guide.load_state_dict(part, strict=True, assign=True)
        except RuntimeError as e:
            raise CheckpointError(f"the average is not one of this model: {e}") from e
        self.guide = (guide.requires_grad_(False).eval(),)

    def weights(self) -> dict[str, float]:
        """Weight of each loss that forward returns."""
        return {"flow": 1.0, "prior": self.loss.prior, "duration": self.loss.duration}

    def forward(self, batch: Batch) -> Sums:
        """Sums and counts of the losses of a batch."""
        dit = self.transformer
        valid = layers.length_mask(batch.lens, batch.mel.shape[1])
        mel = layers.masked((batch.mel - self.audio.mel_mean) / self.audio.mel_std, valid)
        time = batch.time[:, None, None]
        state = (1 - time) * batch.noise + time * mel
        cond = layers.masked(mel, ~(batch.span | batch.drop_audio[:, None]))
        hidden, index, sums = self.place_tokens(batch, mel)
        text = self.text_states(dit, batch, hidden, index)
        velocity = dit(state, cond, text, batch.time, batch.lens).float()
        target = mel - batch.noise
        if self.training and self.loss.model_guidance:
            target = target + self.guidance(batch, state, cond, index)
        error = (velocity - target).square().mean(-1)
        learned = batch.span & valid
        return {"flow": (error.masked_fill(~learned, 0).sum(), learned.sum()), **sums}

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        """Elements of each loss of a batch, those of forward, without running the network.

        Where a text has more tokens than patches, and so no alignment, all of its elements count.
        """
        config = self.transformer.config
        found = {"flow": (batch.span & layers.length_mask(batch.lens, batch.mel.shape[1])).sum()}
        if config.text_upsampling == "aligned":
            p = config.patch_size
            found["prior"] = ((batch.lens + p - 1) // p - batch.wordless // p).sum()
            found["duration"] = (batch.text >= 0).sum()
        return found

    @torch.no_grad()
    def guidance(self, batch: Batch, state: Tensor, cond: Tensor, index: Tensor | None) -> Tensor:
        """The guidance in the target: w(t) (v(c) - v(none)) of the average (arXiv 2502.12154).

        Zero for items whose conditions are dropped: they train v(none).
        """
        if not self.guide:
            raise InputError("loss.model_guidance needs the averaged model; call guide_with(ema)")
        guide, c = self.guide[0], self.loss
        hidden = None if index is None else guide.embed_tokens(batch.text)
        text = self.text_states(guide, batch, hidden, index)
        null = replace(batch, drop_text=torch.ones_like(batch.drop_text))
        filler = self.text_states(guide, null, hidden, index)
        with_and_without = guide(
            torch.cat([state, state]),
            torch.cat([cond, torch.zeros_like(cond)]),
            torch.cat([text, filler]),
            torch.cat([batch.time, batch.time]),
            torch.cat([batch.lens, batch.lens]),
        )
        conditional, unconditional = with_and_without.float().chunk(2)
        moved = (batch.time < c.guidance_until) & ~(batch.drop_text & batch.drop_audio)
        moved = moved[:, None, None]
        return (c.model_guidance * (conditional - unconditional)).masked_fill(~moved, 0)

    def place_tokens(self, batch: Batch, mel: Tensor) -> tuple[Tensor | None, Tensor | None, Sums]:
        """Token states and the token of each patch, for text_upsampling average and aligned.

        The aligner's losses come along if there is one.
        """
        dit = self.transformer
        p = dit.config.patch_size
        if dit.config.text_upsampling == "none":
            return None, None, {}
        tokens = (batch.text >= 0).sum(1)
        hidden = dit.embed_tokens(batch.text)
        if dit.config.text_upsampling == "aligned":
            return hidden, *self.align(batch, hidden, mel, tokens)
        patches, lens = -(-mel.shape[1] // p), (batch.lens + p - 1) // p
        before = batch.wordless // p
        return hidden, later(average_path(tokens, lens - before, patches), before, 0), {}

    def text_states(
        self, dit: DiT, batch: Batch, hidden_BTD: Tensor | None, index_BN: Tensor | None
    ) -> Tensor:
        """Text states of each patch, the filler's where the text is dropped or there is none."""
        before = batch.wordless // dit.config.patch_size
        if hidden_BTD is None or index_BN is None:
            p = dit.config.patch_size
            patches, lens = -(-batch.mel.shape[1] // p), (batch.lens + p - 1) // p
            text = batch.text.masked_fill(batch.drop_text[:, None], -1)
            text = later(layers.pad_length(text[:, :patches], patches, -1), before, -1)
            return dit.embed_text(text, patches, layers.length_mask(lens, patches))
        states = layers.gather_tokens(hidden_BTD, index_BN)
        filler = dit.embed_filler(batch.text).to(states.dtype)
        silent = batch.drop_text[:, None] | layers.length_mask(before, states.shape[1])
        return torch.where(silent[..., None], filler, states)

    def align(
        self, batch: Batch, hidden_BTD: Tensor, mel_BNM: Tensor, tokens_B: Tensor
    ) -> tuple[Tensor, Sums]:
        """The searched token of each patch, the mean loss and the duration loss."""
        aligner = self.transformer.aligner
        assert aligner is not None
        p = self.transformer.config.patch_size
        target = patch_means(mel_BNM, batch.lens, p)
        lens = (batch.lens + p - 1) // p
        mask = layers.length_mask(lens, target.shape[1])
        # as at inference, the speaker embedding is of the prompt, not of the whole clip
        heard = (batch.prompt + p - 1) // p
        part = layers.masked(target, layers.length_mask(heard, target.shape[1]))
        speaker = part.sum(1) / heard[:, None]
        means = self.transformer.token_means(batch.text, speaker).float()
        with torch.no_grad(), torch.autocast(mel_BNM.device.type, enabled=False):
            # a text without the reference's words begins where that ends
            before = batch.wordless // p
            spoken, index = search(earlier(target, before), means, lens - before, tokens_B)
            index = later(index, before, 0)
            mask = mask & ~layers.length_mask(before, target.shape[1])
        error = 0.5 * (target - layers.gather_tokens(means, index)).square().mean(-1)
        guess = aligner.log_durations(hidden_BTD.detach(), speaker).float().clamp(max=7)
        real = spoken > 0
        # Poisson deviance is minimal at the mean duration, so totals are right; squared error of
        # logs is minimal at the geometric mean, which gives hurried speech
        miss = guess.exp() - spoken - spoken * (guess - spoken.clamp(min=1).log())
        miss = miss.masked_fill(~real, 0)
        return index, {
            "prior": (error.masked_fill(~mask, 0).sum(), mask.sum()),
            "duration": (miss.sum(), real.sum()),
        }


def search(
    target_BNM: Tensor, means_BTM: Tensor, lens_B: Tensor, tokens_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Patches per token (B, T) and token per patch (B, N): the search over -0.5 |y - mu|^2."""
    score = target_BNM @ means_BTM.transpose(1, 2)
    score = score - 0.5 * means_BTM.square().sum(-1)[:, None]  # |y|^2 is the same on every path
    return monotonic_search(score, lens_B, tokens_B)


class DurationPredictor(DurationHead, Objective):
    """The duration model with its loss: a prompt and all the text, as at inference.

    The prompt is another clip of the speaker; where there is none, the clip's own beginning.

    Args:
        transformer: the network.
        tokenizer: as for Nanospeech.
        audio: the mel.
    """

    def __init__(
        self,
        transformer: DurationTransformer,
        tokenizer: Callable | object | None = None,
        audio: AudioConfig | None = None,
    ):
        super().__init__(transformer)
        self.tokenizer = tokenizer
        self.audio = audio or AudioConfig()
        self.loss = LossConfig(pair=1.0)

    def weights(self) -> dict[str, float]:
        return {"duration": 1.0}

    def counts(self, batch: DurationBatch | Batch, phase: str = "") -> dict[str, Tensor]:
        """Clips of a batch, which the loss is a mean over."""
        return {"duration": torch.ones_like(batch.lens).sum()}

    def batches(self, samples: Any, plan: Any, **options: Any) -> Any:
        """Prompts with all the text; options as for SpeechBatches."""
        from nanospeech_torch.train.data.speech import DurationBatches

        if self.tokenizer is None:
            raise InputError("the model has no tokenizer; build it with tokenizer=...")
        edge = self.transformer.config.edge
        return DurationBatches(
            samples, self.tokenizer, plan, self.audio, self.loss, edge=edge, **options
        )

    def forward(
        self,
        batch: DurationBatch | Batch | Tensor,
        text_BT: Tensor | None = None,
        lens_B: Tensor | None = None,
    ) -> Sums | Tensor:
        """The loss of a batch, or the seconds of (mel_BNM, text_BT, lens_B).

        The loss is |log(predicted / true)| of the new speech, a relative error that weighs too long
        and too short predictions alike.
        """
        if isinstance(batch, Tensor):
            assert text_BT is not None
            return super().forward(batch, text_BT, lens_B)
        known = getattr(batch, "known", torch.zeros_like(batch.prompt))
        rate = self.audio.frame_rate
        heard = batch.prompt.float().masked_fill(known == 0, 0) / rate
        total = batch.lens.float() / rate
        wanted = (total - heard).clamp(min=0.1)
        if self.transformer.config.pooling == "mean":
            guess = super().forward(batch.mel, batch.text, batch.prompt).float()
            share = (total / wanted).clamp(max=4)  # d log(total) of the new speech's own
            error = (guess.clamp(min=1e-3) / total).log().abs() * share
        else:
            each = self.token_seconds(batch.mel, batch.text, batch.prompt).float()
            old = layers.length_mask(known, each.shape[1])
            guess = each.masked_fill(old, 0).sum(1)
            said = each.masked_fill(~old, 0).sum(1).clamp(min=1e-3)
            stretch = torch.where(known > 0, heard.clamp(min=1e-3) / said, torch.ones_like(said))
            guess = guess * stretch**self.transformer.config.pace  # upsampling.total_seconds
            error = (guess.clamp(min=1e-3) / wanted).log().abs()
        return {"duration": (error.sum(), torch.ones_like(error).sum())}
