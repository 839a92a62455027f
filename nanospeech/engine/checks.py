"""Engine checks: validate and convert callers' arrays, or raise InputError. NumPy only."""

from __future__ import annotations

import numpy as np

from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.errors import InputError


def mels(
    x_BNM: np.ndarray, name: str, config: ModelConfig, like: np.ndarray | None = None
) -> np.ndarray:
    """Float32 (B, N, M) without NaN, perhaps of the same shape as another."""
    x = floats(x_BNM, name)
    wanted = f"(batch, frames, {config.audio.n_mels})" if like is None else str(like.shape)
    if x.ndim != 3 or x.shape[2] != config.audio.n_mels or len(x) == 0:
        raise InputError(f"{name} has shape {x.shape}, should be {wanted}")
    if like is not None and x.shape != like.shape:
        raise InputError(f"{name} has shape {x.shape}, should be {wanted}")
    if not np.isfinite(x).all():
        raise InputError(f"{name} holds infinities or no numbers (NaN)")
    return x


def mel(x_NM: np.ndarray, name: str, config: ModelConfig) -> np.ndarray:
    """A recording's mel as a batch: float32 (1, N, M) without NaN."""
    x = floats(x_NM, name)
    if x.ndim != 2 or x.shape[1] != config.audio.n_mels:
        wanted = f"(frames, {config.audio.n_mels}), of one recording"
        raise InputError(f"{name} has shape {x.shape}, should be {wanted}")
    return mels(x[None], name, config)


def floats(values: np.ndarray, name: str) -> np.ndarray:
    """A float32 array."""
    try:
        return np.asarray(values, np.float32, order="C")
    except (TypeError, ValueError) as e:
        raise InputError(
            f"{name} should be an array of numbers, got {type(values).__name__}"
        ) from e


def words(text_T: np.ndarray, config: ModelConfig) -> np.ndarray:
    """The ids of a recording's words as a batch: int64 (1, T), one at least and no padding."""
    try:
        ids = np.asarray(text_T)
    except ValueError as e:  # lists of several lengths
        raise InputError("text_T should be the ids of one text, got rows of several") from e
    if ids.ndim != 1:
        raise InputError(f"text_T has shape {ids.shape}, should be (tokens,), of one recording")
    ids = known(ids[None], "text_T", config)
    if ids.size == 0 or ids.min() < 0:
        raise InputError("text_T should hold at least one id and no padding")
    return ids


def text(text_BT: np.ndarray, batch: int, config: ModelConfig) -> np.ndarray:
    """Int64 (B, T) of ids in the vocabulary, -1 behind them alone."""
    try:
        ids = np.asarray(text_BT)
    except ValueError as e:  # lists of several lengths
        raise InputError(f"text_BT should be {batch} rows of one length; pad them with -1") from e
    if ids.ndim != 2 or len(ids) != batch:
        raise InputError(f"text_BT has shape {ids.shape}, should be ({batch}, tokens)")
    ids = known(ids, "text_BT", config)
    if np.any((ids[:, :-1] < 0) & (ids[:, 1:] >= 0)):
        raise InputError("text_BT has -1 before the end of an item; padding goes behind its ids")
    return ids


def known(ids: np.ndarray, name: str, config: ModelConfig) -> np.ndarray:
    """Int64 ids in the vocabulary, or -1."""
    if ids.size and ids.dtype.kind not in "iu":
        raise InputError(f"{name} should hold integers, got {ids.dtype}")
    ids = np.ascontiguousarray(ids, np.int64)
    count = config.text_count
    if ids.size and (ids.max() >= count or ids.min() < -1):
        raise InputError(
            f"{name} holds ids {ids.min()} to {ids.max()}; the vocabulary has 0 to {count - 1},"
            " and -1 pads"
        )
    return ids


def times(time_B: np.ndarray, batch: int, distilled: bool = False) -> np.ndarray:
    """Float32 (B,) in [0, 1]; of a distilled model (B, 3): time, guidance and step of each item."""
    time = floats(time_B, "time_B")
    wanted = (batch, 3) if distilled else (batch,)
    if time.shape != wanted:
        what = "time, guidance and step" if distilled else "a time"
        raise InputError(f"time_B has shape {time.shape}, should be {wanted}: {what} an item")
    if not (np.all(time >= 0) and np.all(time <= 1)):
        raise InputError(f"time_B holds {time.min()} to {time.max()}, should be in 0 to 1")
    return time


def lengths(
    lens_B: np.ndarray | None,
    name: str,
    batch: int,
    frames: int,
    cond_BNM: np.ndarray | None = None,
) -> np.ndarray:
    """Int64 (B,) of 1 to `frames`; None is all of them.

    Args:
        cond_BNM: given for lengths of prompts: these may be 0, and None counts their frames.
    """
    if lens_B is None:
        return np.full(batch, frames, np.int64) if cond_BNM is None else leading_frames(cond_BNM)
    lens = integers(lens_B, name, batch)
    least = 1 if cond_BNM is None else 0
    if lens.min() < least or lens.max() > frames:
        raise InputError(
            f"{name} holds {lens.min()} to {lens.max()}, should be in {least} to {frames}"
        )
    return lens.astype(np.int64)


def integers(values_B: np.ndarray, name: str, batch: int) -> np.ndarray:
    """One integer for each item."""
    try:
        found = np.asarray(values_B)
    except ValueError as e:  # lists of several lengths
        raise InputError(f"{name} should be {batch} integers, got rows of several lengths") from e
    if found.shape != (batch,) or found.dtype.kind not in "iu":
        raise InputError(f"{name} should be {batch} integers, got {found.dtype} {found.shape}")
    return found


def prompt_lengths(lens_B: np.ndarray | None, cond_BNM: np.ndarray) -> np.ndarray:
    """Frames of each prompt: as given, or those before the first all-zero one."""
    return lengths(lens_B, "lens_B", len(cond_BNM), cond_BNM.shape[1], cond_BNM)


def prompt_tokens(
    tokens_B: np.ndarray | None, text_BT: np.ndarray, prompt_B: np.ndarray
) -> np.ndarray:
    """Int64 (B,): tokens that each prompt speaks; -1 where that is not known."""
    count = (text_BT >= 0).sum(1)
    if tokens_B is None:
        return np.where(prompt_B > 0, -1, 0)
    tokens = integers(tokens_B, "prompt_tokens_B", len(count))
    if np.any(tokens < 0) or np.any(tokens > count):
        raise InputError(
            f"prompt_tokens_B is {tokens.tolist()}, but the texts have {count.tolist()} tokens"
        )
    return np.where(prompt_B > 0, tokens, 0).astype(np.int64)


def some_text(count_B: np.ndarray) -> None:
    """Raises InputError where an item has no tokens."""
    if np.any(count_B == 0):
        raise InputError("text_BT has an item without tokens; this model needs some text")


def length_mask(lens_B: np.ndarray, length: int) -> np.ndarray:
    """True in the first lens_B[i] of `length` positions: bool (B, length)."""
    return np.arange(length) < lens_B[:, None]


def leading_frames(cond_BNM: np.ndarray) -> np.ndarray:
    """Frames before the first all-zero one: int64 (B,)."""
    return np.cumprod(np.any(cond_BNM != 0, axis=-1), axis=1).sum(1).astype(np.int64)


def speakers(normal_BNM: np.ndarray, prompt_B: np.ndarray, patch_size: int) -> np.ndarray:
    """Mean of each prompt's patches: float32 (B, M), zero without a prompt."""
    from .upsampling import patch_means

    means = [
        patch_means(mel[:n], patch_size).mean(0) if n else np.zeros(mel.shape[1])
        for mel, n in zip(normal_BNM, prompt_B)
    ]
    return np.stack(means).astype(np.float32)


def taught(config: ModelConfig, options: SampleOptions) -> bool:
    """Whether a distilled model was taught to speak so, temperature and time grid included."""
    if options.temperature not in (None, config.temperature):
        return False
    if options.schedule != SampleOptions().schedule:
        return False
    try:
        distilled(config, options)
    except InputError:
        return False
    return True


def distilled(config: ModelConfig, options: SampleOptions) -> None:
    """Raises InputError for options that a distilled model was not taught."""
    usual = SampleOptions()
    for name in ("method", "sway_sampling_coef", "guidance", "zero_init", "cfg_from", "cfg_until"):
        if (got := getattr(options, name)) != (want := getattr(usual, name)):
            raise InputError(
                f"{name} is {got}, but {config.name} is distilled: its steps were taught with"
                f" {name} {want}; leave it out, or speak with the model that it was made from"
            )
    if options.cfg_rescale not in (None, config.cfg_rescale):
        raise InputError(
            f"cfg_rescale is {options.cfg_rescale:g}, but {config.name} is distilled: it was taught"
            f" with {config.cfg_rescale:g}; leave it out, or speak with the model that it was made"
            " from"
        )
    steps = config.chosen(options, "steps")
    if config.step_counts and steps not in config.step_counts:
        counts = ", ".join(map(str, config.step_counts))
        raise InputError(
            f"steps is {steps}, but {config.name} is distilled: it was taught {counts} steps"
        )
    strength, most = config.chosen(options, "cfg_strength"), config.dit.max_strength
    if strength > most:
        raise InputError(
            f"cfg_strength is {strength:g}, but {config.name} is distilled: it was taught"
            f" strengths of 0 to {most:g}"
        )
