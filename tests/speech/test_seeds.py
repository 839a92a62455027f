"""Seeds: whole numbers of Python or NumPy make the same speech, and nothing else is one."""

import json

import numpy as np
import pytest

from nanospeech import InputError
from tests.speech.test_speaker import speaker

TEXT = "First comes this sentence here. " * 3  # a chunk each


def waves(seed):
    """What is spoken with a seed in each way, and the seeds that are told."""
    voice = speaker(seed=seed, chunk_seconds=3)
    alone, (own,) = voice.speak(TEXT), voice.speak_many([TEXT])
    (given,) = voice.speak_many([TEXT], [seed])
    voice = speaker(chunk_seconds=3)
    voice.seed = seed
    later, (batch,) = voice.speak(TEXT), voice.speak_many([TEXT])
    streamed = np.concatenate(list(voice.stream(TEXT, early=False)))
    spoken = [alone, own, given, later, batch]
    return [*(u.wave for u in spoken), streamed], [u.seed for u in spoken]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "seed",
    [
        *(np.uint8(255), np.uint64(2**64 - 1), np.array(3)),
        *(pytest.param(n, marks=pytest.mark.slow) for n in (np.int32(2**31 - 1), np.int64(7))),
    ],
)
def test_a_seed_of_numpy_is_the_whole_number_that_it_is(seed):
    found, seeds = waves(seed)
    wanted, plain = waves(int(seed))
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert json.loads(json.dumps(seeds)) == plain == [int(seed)] * 5


@pytest.mark.parametrize("seed", [1.5, 2.0, np.float64(2), "2", [1], b"1"])
def test_what_is_no_whole_number_is_refused_at_the_door(seed):
    with pytest.raises(InputError, match="seed should be a whole number, got"):
        speaker(seed=seed)
    voice = speaker()
    with pytest.raises(InputError, match="seed should be a whole number, got"):
        voice.speak_many([TEXT, TEXT], [1, seed])
    voice.seed = seed
    for speak in (voice.speak, voice.stream, lambda text: voice.stream([text])):
        with pytest.raises(InputError, match="seed should be a whole number, got"):
            speak(TEXT)
    with pytest.raises(InputError, match="seed should be a whole number, got"):
        voice.speak_many([TEXT])
