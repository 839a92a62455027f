"""Utterance: what is held of finished speech can be compared and kept in sets."""

import dataclasses

import numpy as np
import pytest

from nanospeech.release.prompt import Prompt
from nanospeech.speech.chunks import Chunk, Utterance


def made(kind):
    wave = np.ones(3, np.float32)
    if kind is Utterance:
        return Utterance(wave, 24_000, 0.1, 1, ("Hello.",))
    if kind is Chunk:
        return Chunk("Hello.", np.arange(3), 9, 1)
    return Prompt(wave[None], np.arange(3), 15.0, 1.0)


@pytest.mark.parametrize("kind", [Utterance, Chunk, Prompt])
def test_what_holds_arrays_is_found_in_lists_and_sets(kind):
    one, other = made(kind), made(kind)
    assert one == one and one != other
    assert other in [one, other] and len({one, other, one}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.__setattr__(dataclasses.fields(kind)[0].name, None)
