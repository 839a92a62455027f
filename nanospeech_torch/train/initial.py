"""Initial: a release folder's speech model as an objective to train on. Trains nothing.

Its vocabulary may get more tokens, and its network more parts; adapters are added by
nanospeech_torch/adapters.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import DiTConfig, DurationConfig
from nanospeech.errors import InputError
from nanospeech.release.folder import DURATION, MODEL, Release, open_release
from nanospeech.release.tensors import check_tensors
from nanospeech.text.tags import QUIET
from nanospeech.text.tokenizer import Tokenizer
from nanospeech_torch.dit import DiT
from nanospeech_torch.engine import weightless
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.objectives.flow import Nanospeech

EMBEDDING = "transformer.text_embed.text_embed.weight"
NOISE = 0.1  # of a new row around the mean row, in standard deviations of the old rows


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
        loss: masking and weights of losses; LossConfig() if None.

    Raises:
        InputError: no such model, or a token that cannot be one.
        CheckpointError: the folder is damaged or contradicts itself.
    """
    release = folder if isinstance(folder, Release) else open_release(folder)
    tokenizer, added = extend_vocab(release.tokenizer, extra_vocab)
    config = release.config
    if config.dit.max_strength:
        raise InputError(
            f"{release.folder} is distilled, which is not trained further this way; train the model"
            " that it was made from, then distill that"
        )
    tensors = float_weights(release, MODEL)
    network, tensors = extend(config.dit, tensors, release.tokenizer, added)
    with weightless():
        transformer = DiT(network)
    wanted = {f"transformer.{n}": tuple(t.shape) for n, t in transformer.state_dict().items()}
    check_tensors({n: tuple(t.shape) for n, t in tensors.items()}, wanted, release.path(MODEL))
    state = {n.removeprefix("transformer."): t for n, t in tensors.items()}
    transformer.load_state_dict(state, assign=True)
    transformer.requires_grad_()
    return Nanospeech(transformer, tokenizer, config.audio, loss)


def float_weights(release: Release, name: str) -> dict[str, Tensor]:
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
    wider = Tokenizer(tokenizer.kind, tokenizer.vocab + added)
    return wider.with_language(tokenizer.language), added


def extend(
    config: Any, tensors: dict[str, Tensor], old: Tokenizer, added: Sequence[str], seed: int = 0
) -> tuple[Any, dict[str, Tensor]]:
    """A network's config and tensors with rows for new tokens behind the old ones.

    Args:
        config: DiTConfig or DurationConfig.
        tensors: by their published names.
        old: the vocabulary of the tensors. A model may hold one row more than it has tokens and
            the filler; it was never used, and the first new token takes it.
        added: the new tokens. Their rows are the old ones' mean, or the space's for a tag of
            something quiet, with a little noise that makes them differ. The space is what a model
            knows as silence: an aligner gives a gap to it, and to such a tag, from the first step.
        seed: of the noise.
    """
    if not added:
        return config, tensors
    known, whole = len(old), tensors[EMBEDDING]
    rows = whole[1 : known + 1]  # row 0 is the filler, ids are shifted by one
    draw = torch.randn(len(added), whole.shape[1], generator=torch.Generator().manual_seed(seed))
    silence = rows[old.ids[" "]] if " " in old.ids else rows.mean(0)
    starts = [silence if QUIET.fullmatch(token) else rows.mean(0) for token in added]
    table = torch.cat([whole[: known + 1], torch.stack(starts) + NOISE * rows.std(0) * draw])
    config = dataclasses.replace(config, text_num_embeds=known + len(added))
    return config, {**tensors, EMBEDDING: table}


def grown(known: DiT, wanted: DiTConfig) -> DiT:
    """The network extended to `wanted`, or itself if nothing is new.

    New blocks stand evenly between the old ones and are identities at first, as their adaLN starts
    at zero (DiT, arXiv 2212.09748); networks without adaln_zero do not grow deeper.
    """
    have = known.config
    more: dict[str, int] = {}
    if known.aligner is not None and not have.aligner_dim and wanted.aligner_dim:
        more["aligner_dim"] = wanted.aligner_dim
    if not have.prompt_dim and wanted.prompt_dim:
        more["prompt_dim"] = wanted.prompt_dim
    if have.adaln_zero and wanted.depth > have.depth:
        more["depth"] = wanted.depth
    if not more:
        return known
    larger = DiT(dataclasses.replace(have, **more))
    places = [i * larger.config.depth // have.depth for i in range(have.depth)]
    state = {}
    for name, tensor in known.state_dict().items():
        head, _, rest = name.partition(".")
        if head == "transformer_blocks":
            number, _, rest = rest.partition(".")
            name = f"{head}.{places[int(number)]}.{rest}"
        state[name] = tensor
    larger.load_state_dict({**larger.state_dict(), **state})
    return larger


def duration_state(release: Release, objective: Nanospeech) -> dict[str, Any] | None:
    """The release's duration model for the objective's vocabulary, as a checkpoint to convert.

    It is not trained, as a new voice's pace comes from its prompt. None if there is none.
    """
    config = release.config.duration
    if config is None:
        return None
    tokenizer: Any = objective.tokenizer
    added = tokenizer.vocab[len(release.tokenizer) :]
    config, tensors = extend(config, float_weights(release, DURATION), release.tokenizer, added)
    assert isinstance(config, DurationConfig)
    return {"model_state_dict": tensors, "config": {"duration": asdict(config)}}
