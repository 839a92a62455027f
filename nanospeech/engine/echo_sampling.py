"""Echo sampling: EchoDiT's options and Euler steps; where its speech ends. Knows no tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nanospeech.arguments import check_kind
from nanospeech.config import SampleOptions
from nanospeech.errors import InputError
from nanospeech.latent_architectures import EchoOptions

LAST = 0.999  # of the times: at 1 the velocity says nothing
# of SampleOptions: what an EchoDiT's sampling does not have
WITHOUT = ("guidance", "zero_init", "schedule", "sway_sampling_coef")
WINDOW, FLAT_STD, FLAT_MEAN = 20, 0.05, 0.1  # of latents that are silence


def echo_options(
    options: SampleOptions | EchoOptions | None, own: EchoOptions | None = None
) -> EchoOptions:
    """Echo's own options, or those that the others amount to.

    Args:
        options: those asked for; None is the model's own.
        own: the model's.

    Raises:
        InputError: a solver, a grid or a guidance that models of latents do not know.
    """
    own = own or EchoOptions()
    if options is None:
        return own
    if isinstance(options, EchoOptions):
        return options
    wanted = "EchoOptions(...), SampleOptions(...) or None"
    check_kind("options", options, SampleOptions, wanted)
    if options.method != "euler":
        raise InputError(f"method is {options.method!r}; models of latents know euler alone")
    if options.cfg_rescale:
        raise InputError(
            f"cfg_rescale is {options.cfg_rescale:g}, but models of latents do not rescale"
            " guidance; leave it out"
        )
    usual = SampleOptions()
    for name in WITHOUT:
        if (value := getattr(options, name)) != getattr(usual, name):
            raise InputError(f"{name} is {value}, but models of latents have none; leave it out")
    strength = own.cfg_text if options.cfg_strength is None else options.cfg_strength
    # as much stronger as the text's; 0 is no guidance at all
    ratio = strength / own.cfg_text if own.cfg_text else options.cfg_strength != 0
    asked = (options.cfg_from, options.cfg_until) != (0, 1)
    return replace(
        own,
        steps=own.steps if options.steps is None else options.steps,
        cfg_text=strength,
        cfg_speaker=own.cfg_speaker * ratio,
        cfg_min_t=1 - options.cfg_until if asked else own.cfg_min_t,
        cfg_max_t=1 - options.cfg_from if asked else own.cfg_max_t,
        truncation=own.truncation if options.temperature is None else options.temperature,
    )


def euler(velocity: Callable[[float, Any], Any], x: Any, o: EchoOptions) -> Iterator[Any]:
    """Steps along times that fall from almost 1 to 0, yielding the state after each."""
    times = np.linspace(1, 0, o.steps + 1, dtype=np.float32) * np.float32(LAST)
    for t, after in zip(times[:-1].tolist(), times[1:].tolist()):
        v = velocity(t, x)
        if o.rescale_k is not None:
            v = rescaled(v, x, t, o.rescale_k, o.rescale_sigma)
        x = x + (after - t) * v
        yield x


def rescaled(v: Any, x: Any, t: float, k: float, sigma: float) -> Any:
    """Temporal score rescaling (arXiv 2510.01184): a sharper (k > 1) or wider distribution.

    Args:
        v: velocity towards the noise at x.
        t: time in [0, 1], of which 1 is noise.
        k: factor of the score's inverse variance.
        sigma: size of what is sharpened.
    """
    if t >= 1:
        return v
    snr = ((1 - t) / t) ** 2
    ratio = (snr * sigma**2 + 1) / (snr * sigma**2 / k + 1)
    return (ratio * ((1 - t) * v + x) - x) / (1 - t)


def end_of(latent_NC: np.ndarray) -> int:
    """Latents before the silence at the end: the first window that is flat, or all of them."""
    padded = np.concatenate([latent_NC, np.zeros((WINDOW, latent_NC.shape[1]), latent_NC.dtype)])
    for i in range(len(latent_NC)):
        window = padded[i : i + WINDOW]
        if window.std() < FLAT_STD and abs(window.mean()) < FLAT_MEAN:
            return i
    return len(latent_NC)
