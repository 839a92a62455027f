"""Laws of the network that says unknown words: torch's twin, batches, errors on held-out words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nanospeech.text.g2p import WEIGHTS, guess, letter_ids, network
from nanospeech.text.phonemes import ending, pronounce
from nanospeech.text.sentences import fit, readable
from nanospeech.text.spoken import LETTERS, MODEL, say_word
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from scripts.recipes.g2p import Model, bare, distance, error_rate, letter_sounds, load_words

PHONEMES = Tokenizer("phonemes", phoneme_vocab())
INITIALS = Path(__file__).parent.parent / "fixtures" / "initials.tsv"


def test_it_is_small_and_what_torch_computes():
    torch = pytest.importorskip("torch")
    assert WEIGHTS.stat().st_size < 1_000_000
    model = Model(128, 48, 0.0).eval()
    tensors = {n: torch.from_numpy(t) for n, t in network().tensors.items()}
    model.load_state_dict(tensors)
    ids, lens = letter_ids(["kubernetes"])
    ours = network().scores(ids, lens)
    ours = ours - np.log(np.exp(ours).sum(-1, keepdims=True))
    assert np.abs(model(torch.from_numpy(ids)).detach().numpy() - ours).max() < 1e-4


def test_a_word_is_said_alike_in_any_batch():
    words = ["kubernetes", "zyx", "blorptastic", "a", "llanfairpwllgwyngyll"]
    together = network().phonemes(words, batch=4)
    assert together == [network().phonemes([word])[0] for word in words]
    assert guess(words + words) == together * 2
    assert all(sum(p[-1] == "1" for p in said) >= 1 for said in together)


def test_words_that_were_held_out_are_said_better_than_by_letters():
    words, _, held = load_words()
    assert not words.keys() & held.keys() and len(held) > 10_000
    some = list(held)[::30]
    right = [held[word] for word in some]
    said = network().phonemes(some)
    sounds = letter_sounds(words)
    assert error_rate(said, right) < 0.11  # 9 % of all of them
    assert error_rate(bare(said), bare(right)) < 0.09
    assert error_rate([[sounds[c] for c in word] for word in some], right) > 0.5


def test_unknown_words_are_the_networks_and_their_owners_too():
    said, source = say_word("Simbegwire")
    assert source == MODEL and said == guess(["simbegwire"])[0]
    owner, source = say_word("Simbegwire's")
    assert source == MODEL and owner == (*said, *ending("'s", said[-1]))
    assert say_word("xqzzt") == (tuple("xqzzt"), LETTERS)
    pieces = PHONEMES.spoken("A Simbegwire blorptastic.")
    assert [p.source for p in pieces if p.tokens[0] != " "][1:3] == [MODEL, MODEL]
    # letters are still what the trainer asks for
    assert PHONEMES.tokens("Simbegwire", spell=[0]) == [*"simbegwire"]


def wanted(said: str) -> list[str]:
    """Phonemes without stress of "C-P-U-s", letters by their names, or of ARPAbet."""
    found: list[str] = []
    for part in said.split("   "):
        if "-" not in part:
            found += part.split()
            continue
        for c in part.split("-"):
            name = ("EY1",) if c == "A" else pronounce(c.lower())
            found += ending("'s", found[-1]) if c == "s" else name or ()
    return bare([found])[0]


def test_initials_are_said_by_their_letters():
    """Rows of even numbers were not looked at while the rules were made."""
    errors, total = [0, 0], [0, 0]
    for number, line in enumerate(INITIALS.read_text().splitlines(), 1):
        written, said = line.split("\t")
        text = fit(readable(f"the {written} is", PHONEMES), PHONEMES)[0]
        tokens = [t for t in PHONEMES.tokens(text) if t != " "][2:-2]
        right = wanted(said)
        errors[number % 2] += distance(bare([tokens])[0], right)
        total[number % 2] += len(right)
    assert errors[1] == 0 and total[1] > 200
    assert errors[0] / total[0] < 0.12
