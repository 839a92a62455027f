"""Tokenizer: ids and back, vocabularies on disk, what is not known."""

from __future__ import annotations

import numpy as np
import pytest

from nanospeech.errors import CheckpointError, InputError
from nanospeech.text.phonemes import dictionary
from nanospeech.text.spoken import SPELLED
from nanospeech.text.tokenizer import Tokenizer, pad_tokens, phoneme_vocab

VOCAB = [*" abcdefghijklmnopqrstuvwxyz.,'!?-"]


def test_characters_come_back():
    chars = Tokenizer("chars", VOCAB)
    text = "hello there, general. isn't it?"
    assert "".join(chars.vocab[i] for i in chars.encode(text)) == text
    assert chars.encode(text).dtype == np.int64


def test_tokens_of_several_characters_are_matched_first_and_the_longest_first():
    plain = Tokenizer("chars", VOCAB)
    tagged = Tokenizer("chars", [*VOCAB, "<laugh>", "<laugh>!", "sh", "she", "hi"])
    assert tagged.tokens("oh <laugh>! <laugh>?") == [*"oh ", "<laugh>!", "<laugh>", "?"]
    assert tagged.tokens("she washi") == ["she", " ", "w", "a", "sh", "i"]
    assert not tagged.unknown("<laugh>") and tagged.unknown("<laugh") == {"<"}
    # what has none of them keeps its ids
    text = "hello there, general. isn't it?"
    assert np.array_equal(tagged.encode(text), plain.encode(text))
    assert plain.tokens("<laugh>") == list("<laugh>") and plain.whole is None


def test_tags_in_phonemes_leave_words_and_their_places_alone():
    plain = Tokenizer("phonemes", phoneme_vocab())
    tagged = Tokenizer("phonemes", [*phoneme_vocab(), "<big laugh>"])
    bread = plain.tokens("bread")
    assert tagged.tokens("Bread<big laugh>bread") == [*bread, "<big laugh>", *bread]
    # places of words to spell count all words, as the trainer does
    said = tagged.tokens("Bread <big laugh> bread", spell=[3])
    assert said == [*bread, "<big laugh>", *"bread"]  # no spaces beside it
    assert tagged.tokens("AA1 B") == plain.tokens("AA1 B")
    assert plain.whole is None and Tokenizer("bytes", []).whole is None


def test_bytes_know_every_text():
    tokenizer = Tokenizer("bytes", [])
    text = "naïve 日本 🙂\n"
    assert bytes(tokenizer.encode(text).tolist()).decode() == text
    assert not tokenizer.unknown(text) and len(tokenizer) == 256


def test_unknown_characters_are_left_out_and_told():
    chars = Tokenizer("chars", VOCAB)
    assert chars.unknown("a€b🙂a") == {"€", "🙂"}
    assert np.array_equal(chars.encode("a€b"), chars.encode("ab"))
    assert chars.encode("€").shape == (0,)


def test_phonemes_of_known_words_and_letters_of_others():
    tokenizer = Tokenizer("phonemes", phoneme_vocab())
    assert len(set(tokenizer.vocab)) == len(tokenizer)
    spoken = tokenizer.tokens("Bread, xqzzt!")
    assert spoken[:4] == ["B", "R", "EH1", "D"]
    assert spoken[4:] == [",", " ", *"xqzzt", "!"]
    assert not tokenizer.unknown("Bread, xqzzt!")
    # spelling a word out is the caller's choice, by the word's place
    assert tokenizer.tokens("Bread, bread", spell=[1])[-5:] == [*"bread"]


def test_phonemes_leave_no_letter_unspoken():
    tokenizer = Tokenizer("phonemes", phoneme_vocab())
    text = "the museum in Zyxxwv isn't “open”… — NASA, ok?"
    assert not tokenizer.unknown(text)
    assert len(tokenizer.encode(text)) == len(tokenizer.tokens(text))


def test_padding():
    batch = pad_tokens([np.array([3, 1]), np.array([], np.int64), np.array([2, 2, 2])])
    assert batch.tolist() == [[3, 1, -1], [-1, -1, -1], [2, 2, 2]]
    assert batch.dtype == np.int64
    assert pad_tokens([]).shape == (0, 0)


# a vocabulary's tokens may be any character but "\n", line separators of other systems too
@pytest.mark.parametrize("vocab", [VOCAB, [" ", "\u2028", "\x0b", "\x85", "é"], phoneme_vocab()])
def test_a_vocabulary_survives_the_disk(tmp_path, vocab):
    path = tmp_path / "vocab.txt"
    Tokenizer("chars", vocab).save(path)
    assert Tokenizer.load("chars", path).vocab == vocab


def test_published_vocabulary(golden):
    tokenizer = Tokenizer.load("chars", golden / "vocab.txt")
    assert tokenizer.vocab[0] == " " and len(tokenizer) == 33


def test_line_ends_of_windows_and_at_the_end_of_the_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b" \r\na\r\nb\r\n")
    assert Tokenizer.load("chars", path).vocab == [" ", "a", "b"]


@pytest.mark.parametrize("content", [b"", b"a\nb\na", b"\xff\xfe\n", None])
def test_damaged_vocabularies(tmp_path, content):
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"vocab\.txt"):
        Tokenizer.load("chars", path)


def test_unknown_kind_names_the_choices():
    with pytest.raises(InputError, match="chars, bytes, phonemes"):
        Tokenizer("words", [])


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [
        ("snowploughs", "S N OW1 P L AW2 Z"),
        ("unblocked", "AH0 N B L AA1 K T"),
        ("colourful", "K AH1 L ER0 F AH0 L"),
        ("auxiliaries", "AA0 G Z IH1 L Y ER0 IY0 Z"),
        ("paleness", "P EY1 L N AH0 S"),
        ("PyTorch", "P AY1 T AO1 R CH"),
        ("MPs", "EH1 M P IY1 Z"),
        ("LGBT", "EH1 L JH IY1 B IY1 T IY1"),
        ("BAAF", "B IY1 EY1 EY1 EH1 F"),
        ("HTTPX", "EY1 CH T IY1 T IY1 P IY1 EH1 K S"),
        ("Simbegwire", "S IH1 M B AH0 G W AY2 ER0"),
        ("shouldn't've", "SH UH1 D AH0 N T AH0 V"),
        ("I'd've", "AY1 D AH0 V"),
        ("Tom'd", "T AA1 M D"),
        ("kids're", "K IH1 D Z ER0"),
        ("MSc", "EH1 M EH1 S S IY1"),
        ("txt", "T IY1 EH1 K S T IY1"),
        ("psst", "P S T"),
        ("soooo", "S OW1"),
        ("Goooood", "G UH1 D"),
        ("whaaat", "W AH1 T"),
        ("shhhh", "SH"),
        ("www", "D AH1 B AH0 L Y UW0 " * 3),
        ("putting", "P UH1 T IH0 NG"),
        ("faux", "F OW1"),
        ("z" * 50_000, " ".join("z" * 50_000)),
    ],
    ids=lambda s: s[:20],
)
def test_words_that_no_dictionary_has(word, phonemes):
    assert Tokenizer("phonemes", phoneme_vocab()).tokens(word) == phonemes.split()


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [("AI", "EY1 AY1"), ("ID", "AY1 D IY1"), ("IDs", "AY1 D IY1 Z"), ("AI's", "EY1 AY1 Z")]
    + [
        ("id", "IH1 D"),
        ("IT", "IH1 T"),
        ("TV", "T IY1 V IY1"),
        ("EVs", "IY1 V IY1 Z"),
        ("COO", "S IY1 OW1 OW1"),
    ]
    + [("AES", "EY1 IY1 EH1 S"), ("ATMs", "EY1 T IY2 EH1 M Z"), ("iOS", "AY1 OW1 EH1 S")],
)
def test_initials_that_look_like_a_word_are_named(word, phonemes):
    assert Tokenizer("phonemes", phoneme_vocab()).tokens(word) == phonemes.split()


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [("doin'", "D UW1 IH0 N '"), ("Lookin'!", "L UH1 K IH0 N ' !"), ("'goin'", "' G OY1 N '")]
    + [("certain'", "S ER1 T AH0 N '"), ("re-enter", "R IY1 - EH1 N T ER0")],
)
def test_marks_beside_a_word_tell_how_it_is_said(text, phonemes):
    assert Tokenizer("phonemes", phoneme_vocab()).tokens(text) == phonemes.split()


def test_the_dictionary_goes_before_all_rules():
    tokenizer = Tokenizer("phonemes", phoneme_vocab())
    plain = [w for w in dictionary() if w.isascii() and w.isalpha()]
    assert len(plain) > 100_000
    for word in plain[::17]:
        assert tokenizer.word(word) == dictionary()[word].split()
        if word.upper() not in SPELLED:
            assert tokenizer.word(word.upper()) == dictionary()[word].split()


@pytest.mark.parametrize("kind", ["phonemes", "chars", "bytes"])
def test_places_of_tokens_follow_each_other_over_the_whole_text(kind):
    vocab = {"phonemes": [*phoneme_vocab(), "<laugh>"], "chars": [*" abch", "ch"], "bytes": []}
    tokenizer = Tokenizer(kind, vocab[kind])
    for text in ["A cab<laugh>chats; naïve 3\n", "", "tomato, x", "你 é"]:
        places = tokenizer.places(text)
        assert [token for token, _, _ in places] == tokenizer.tokens(text)
        edges = [0.0, *(stop for _, _, stop in places)]
        assert [start for _, start, _ in places] == pytest.approx(edges[:-1])
        assert edges[-1] == pytest.approx(len(text))
    if kind == "phonemes":  # T AH0 M EY1 T OW2 in six characters
        assert [round(start, 3) for _, start, _ in tokenizer.places("tomato, x")[:8]] == [
            *range(6), 6, 7,
        ]  # fmt: skip
