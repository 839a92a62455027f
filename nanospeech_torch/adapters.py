"""Finetune: a release folder opened for training on, whole or by adapters (LoRA). Not a loop.

LoRA (arXiv 2106.09685) freezes the weights W and learns W + B A * alpha / r. The adapters are the
peft package's; merging needs nothing but tensors, so a converter need not have it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nanospeech.config import DurationConfig, option
from nanospeech.errors import CheckpointError, InputError, require
from nanospeech.release.folder import DURATION, MODEL, Release, check_tensors, open_release
from nanospeech.release.voice_weights import is_thin
from nanospeech.text.tokenizer import Tokenizer
from nanospeech_torch.train.loop.trainer import NanospeechTrainer
from nanospeech_torch.train.objectives.flow import LossConfig, Nanospeech

from .dit import DiT

EMBEDDING = "transformer.text_embed.text_embed.weight"
ADAPTER = "default"  # peft's name of the one set of adapters
NOISE = 0.1  # of a new row around the mean row, in standard deviations of the old rows


@dataclass(frozen=True)
class LoraConfig:
    """Which weights get adapters, and how large these are."""

    rank: int = option(16, "rank r of the adapters")
    alpha: float = option(32.0, "adapters are scaled by alpha / rank")
    dropout: float = option(0.0, "chance that an adapter's input is dropped")
    targets: str = option(
        "to_q,to_k,to_v,to_out.0,ff.ff.0.0,ff.ff.2",
        "linear layers, by the ends of their names; attn_norm.linear would add adaLN's",
    )
    whole: str = option("aligner", "parts that are trained as they are, by their first names")
    thin: bool = option(False, "biases, norms and other thin tensors are trained as they are too")

    def __post_init__(self):
        if self.rank < 1:
            raise InputError(f"LoRA's rank is {self.rank}; choose at least 1")
        if not 0 <= self.dropout < 1:
            raise InputError(f"LoRA's dropout is {self.dropout}; choose 0 up to 1")

    @property
    def scale(self) -> float:
        """Factor of B A: alpha / rank."""
        return self.alpha / self.rank


def load_objective(
    folder: str | Path | Release | None = None,
    extra_vocab: Iterable[str] = (),
    loss: LossConfig | None = None,
) -> Nanospeech:
    """The speech model of a release folder with its loss, ready to train on.

    Args:
        folder: release folder, Hub name, an opened one, or None for the voice that is shipped.
        extra_vocab: tokens to append; those that the model has are left out. Old tokens keep
            their ids and rows.
        loss: what is hidden in training; LossConfig() if None.

    Raises:
        InputError: no such model, or a token that cannot be one.
        CheckpointError: the folder is damaged or contradicts itself.
    """
    release = folder if isinstance(folder, Release) else open_release(folder)
    tokenizer, added = extend_vocab(release.tokenizer, extra_vocab)
    config = release.config
    tensors = read_release(release, MODEL)
    network, tensors = extend(config.dit, tensors, len(release.tokenizer), len(added))
    with torch.device("meta"):
        transformer = DiT(network)
    wanted = {f"transformer.{n}": tuple(t.shape) for n, t in transformer.state_dict().items()}
    check_tensors({n: tuple(t.shape) for n, t in tensors.items()}, wanted, release.path(MODEL))
    state = {n.removeprefix("transformer."): t for n, t in tensors.items()}
    transformer.load_state_dict(state, assign=True)
    transformer.requires_grad_()
    return Nanospeech(transformer, tokenizer, config.audio, loss)


def read_release(release: Release, name: str) -> dict[str, Tensor]:
    """float32 tensors of one of a release's files, by their published names."""
    return {n: torch.tensor(t, dtype=torch.float32) for n, t in release.weights(name).items()}


def extend_vocab(tokenizer: Tokenizer, extra: Iterable[str]) -> tuple[Tokenizer, list[str]]:
    """A tokenizer that knows more tokens, appended to the old ones, and which these are.

    Raises:
        InputError: bytes need none, or a token is empty or holds a line feed.
    """
    extra = list(dict.fromkeys(extra))
    if extra and tokenizer.kind == "bytes":
        raise InputError("a model that reads bytes knows every text; it takes no extra vocabulary")
    if bad := [t for t in extra if not t or "\n" in t or "\r" in t]:
        raise InputError(f"{bad[0]!r} cannot be a token: vocab.txt holds one a line")
    added = [t for t in extra if t not in tokenizer.ids]
    return Tokenizer(tokenizer.kind, tokenizer.vocab + added), added


def extend(
    config: Any, tensors: dict[str, Tensor], known: int, added: int, seed: int = 0
) -> tuple[Any, dict[str, Tensor]]:
    """A network's config and tensors with rows for new tokens behind the old ones.

    Args:
        config: DiTConfig or DurationConfig.
        tensors: by their published names.
        known: tokens of the old vocabulary. A model may hold one row more than these and the
            filler; it was never used, and the first new token takes it.
        added: how many tokens are new. Their rows are the old ones' mean, with a little noise
            that makes them differ.
        seed: of the noise.
    """
    if not added:
        return config, tensors
    old = tensors[EMBEDDING]
    rows = old[1 : known + 1]  # row 0 is the filler, ids are shifted by one
    draw = torch.randn(added, old.shape[1], generator=torch.Generator().manual_seed(seed))
    new = rows.mean(0) + NOISE * rows.std(0) * draw
    table = torch.cat([old[: known + 1], new])
    config = dataclasses.replace(config, text_num_embeds=known + added)
    return config, {**tensors, EMBEDDING: table}


def duration_state(release: Release, objective: Nanospeech) -> dict[str, Any] | None:
    """The release's duration model for the objective's vocabulary, as a checkpoint to convert.

    It is not trained on: a new voice's pace comes from its prompt. None where there is none.
    """
    config = release.config.duration
    if config is None:
        return None
    tokenizer: Any = objective.tokenizer
    known, added = len(release.tokenizer), len(tokenizer) - len(release.tokenizer)
    tensors = read_release(release, DURATION)
    config, tensors = extend(config, tensors, known, added)
    assert isinstance(config, DurationConfig)
    return {"model_state_dict": tensors, "config": {"duration": asdict(config)}}


def add_lora(
    objective: Nanospeech, config: LoraConfig | None = None, new_tokens: int = 0
) -> Nanospeech:
    """Freezes the model and gives it adapters, which start as no change at all.

    Args:
        objective: changed in place.
        config: of the adapters.
        new_tokens: the last so many rows of the token embedding are trained too.

    Returns:
        The objective.

    Raises:
        InputError: a target that no linear layer's name ends in, or an unknown part.
        BackendError: peft is not installed.
    """
    peft = require("peft", "finetune")
    config = config or LoraConfig()
    names = [n for n, m in objective.named_modules() if isinstance(m, nn.Linear)]
    targets = split(config.targets)
    for target in targets:
        if not any(n == target or n.endswith("." + target) for n in names):
            raise InputError(f"LoRA's target {target!r} is the end of no linear layer's name")
    options = {"r": config.rank, "lora_alpha": config.alpha, "lora_dropout": config.dropout}
    peft.inject_adapter_in_model(
        peft.LoraConfig(target_modules=targets, **options), objective, ADAPTER
    )
    for name, parameter in objective.named_parameters():
        thin = config.thin and is_thin(parameter)
        parameter.requires_grad_("lora_" in name or thin)
    for part in split(config.whole):
        if not hasattr(objective.transformer, part):
            known = ", ".join(n for n, _ in objective.transformer.named_children())
            raise InputError(f"the model has no part {part!r}; choose from {known}")
        if module := getattr(objective.transformer, part):  # None: an option that it was not given
            module.requires_grad_()
    if new_tokens:
        train_last_rows(objective.transformer.text_embed.text_embed.weight, new_tokens)
    return objective


def split(names: str) -> list[str]:
    """The names of a comma-separated list."""
    return [name.strip() for name in names.split(",") if name.strip()]


def train_last_rows(table: Tensor, count: int) -> None:
    """Lets only the last rows of a table have gradients (and so move, without weight decay)."""
    table.requires_grad_()
    keep = torch.zeros(len(table), 1)
    keep[-count:] = 1
    here: dict[torch.device, Tensor] = {}

    def only_last(grad: Tensor) -> Tensor:
        if grad.device not in here:  # once: a copy in every step would wait for the device
            here[grad.device] = keep.to(grad.device)
        return grad * here[grad.device].to(grad.dtype)

    table.register_hook(only_last)


def trainable(objective: nn.Module) -> list[nn.Parameter]:
    """The parameters to give to an optimizer."""
    return [p for p in objective.parameters() if p.requires_grad]


def merge_lora(state: Mapping[str, Tensor], config: LoraConfig) -> dict[str, Tensor]:
    """Adapters added to the weights that they sit on: W + B A * alpha / r.

    Args:
        state: state_dict() of an objective with adapters.
        config: of the adapters.

    Returns:
        float32 tensors by their published names.

    Raises:
        CheckpointError: an adapter lacks its other half or its weight, or is of another rank.
    """
    plain = {n: t for n, t in state.items() if ".lora_" not in n}
    merged = {n.replace(".base_layer.", "."): t for n, t in plain.items()}
    down = f".lora_A.{ADAPTER}.weight"
    for name, a in state.items():
        if ".lora_A." not in name:
            continue
        target = name.removesuffix(down) + ".weight"
        b = state.get(name.replace(".lora_A.", ".lora_B."))
        if not name.endswith(down) or b is None or target not in merged:
            raise CheckpointError(f"the adapter {name} does not belong to a plain LoRA")
        if a.shape[0] != config.rank:
            raise CheckpointError(
                f"{name} has rank {a.shape[0]}, but the run was of rank {config.rank}"
            )
        merged[target] = merged[target].float() + b.float() @ a.float() * config.scale
    return merged


def blend(
    base: Mapping[str, Tensor], tuned: Mapping[str, Tensor], strength: float
) -> dict[str, Tensor]:
    """Weights between a model and what it became: clearer speech against a closer likeness.

    Robust finetuning by averaging weights: arXiv 2109.01903.

    Args:
        base: tensors before, by their published names.
        tuned: tensors after; rows for new tokens, which the base lacks, stay as they are.
        strength: 0 gives the base, 1 what it became.
    """
    blended = {}
    for name, after in tuned.items():
        before, after = base[name].float(), after.float()
        mixed = torch.lerp(before, after[: len(before)], strength)
        blended[name] = torch.cat([mixed, after[len(before) :]])
    return blended


class FinetuneTrainer(NanospeechTrainer):
    """NanospeechTrainer whose checkpoints tell a converter of their adapters.

    Args:
        lora: as given to add_lora; None for a model without adapters.
    """

    def __init__(self, *args: Any, lora: LoraConfig | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.lora = lora

    def model_config(self) -> dict[str, Any]:
        config = super().model_config()
        return config | {"lora": asdict(self.lora)} if self.lora else config
