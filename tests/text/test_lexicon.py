"""Laws of a lexicon: which words it says, what stays as it is, and what an error names."""

from __future__ import annotations

import os
import time

import pytest

from nanospeech import OutputOptions, Speaker, load_engine
from nanospeech.commands import main
from nanospeech.errors import InputError
from nanospeech.release.user_lexicon import lexicon_path, open_lexicon, tokenizer_of
from nanospeech.release.voices import user_voices
from nanospeech.text.lexicon import Lexicon
from nanospeech.text.markup import read_markup
from nanospeech.text.sentences import encode, fit, readable
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab

PHONEMES = Tokenizer("phonemes", phoneme_vocab())


def said(text: str, words: dict[str, str]) -> list[str]:
    """Tokens of a text after normalisation."""
    tokenizer = PHONEMES.with_lexicon(Lexicon(words))
    return tokenizer.tokens(fit(readable(text, tokenizer), tokenizer)[0])


@pytest.mark.parametrize("text, entry, found", [
    ("A tomato.", "tomato", True),
    ("TOMATO", "tomato", True),  # small letters: any case
    ("A Tomato.", "Tomato", True),
    ("A tomato.", "Tomato", False),  # capitals: themselves
    ("tomato's", "tomato", True),
    ("tomatoes", "tomato", False),
    ("an e-tomato, or", "tomato", True),
    ("we don't", "don", False),
    ("O'Malley", "malley", False),
    ("Łukasz said", "Łukasz", True),  # which would be respelled
    ("for the US.", "US", True),  # which would be "U S"
    ("use us", "US", False),
    ("Dr. Hall", "dr", True),
    ("C++ is", "C++", True),
    ("C++11 is", "C++", False),
    ("5 km", "km", True),
    ("mail tomato@example.com", "tomato", True),  # "tomato at example dot com"
])  # fmt: skip
def test_where_a_word_is_found(text, entry, found):
    tokens = said(text, {entry: "ZH OY1 ZH"})
    assert ("OY1" in tokens) is found
    if not found:
        assert tokens == said(text, {"qqq": "K"})


@pytest.mark.parametrize("text, wanted", [
    ("[say: Anna | ZH OY1]'s car", "ZH OY1 Z   K AA1 R"),
    ("[[ ʒˈɔɪs ]]’s car", "ZH OY1 S IH0 Z   K AA1 R"),
    ("[say: Anna | ZH OY1]'ll", "ZH OY1 ' EH1 L EH1 L"),
    ("O'[say: Brien | ZH OY1]", "OW1 ' ZH OY1"),
    ("[say: New  York | ZH OY1] a", "ZH OY1   AH0"),
    ("[say: New\n York | ZH OY1] a", "ZH OY1   AH0"),
    ("[[ ʒˈɔɪ  ðə ]] a", "ZH OY1   DH AH0   AH0"),
])  # fmt: skip
def test_sounds_of_markup_are_said_whatever_stands_in_and_around_them(text, wanted):
    found = read_markup(text)
    tokens = said("".join(span.said.text for span in found.spans), found.phonemes)
    assert " ".join(tokens) == wanted


def test_the_longest_entry_and_the_one_of_its_case_go_first():
    words = {"new": "OY1", "new york": "N UW1 | Y AO1 R K", "York": "AW1", "york": "EY1"}
    assert said("New York", words) == ["N", "UW1", " ", "Y", "AO1", "R", "K"]
    assert said("New\nYork", words) == said("New York", words)
    assert said("York, york", words) == ["AW1", ",", " ", "EY1"]
    # marks and words around it stay
    around = said("Bread, New York's bread!", words)
    assert around[:6] == ["B", "R", "EH1", "D", ",", " "] and around[-6:-5] == [" "]
    assert around[6:14] == [*said("New York", words), "S"]


def test_many_entries_that_begin_alike_are_found_as_fast_as_others():
    """Clients of a server send lexicons: one of 50 kB, and a text of 4 kB, took a minute."""
    alike = Lexicon({f"{'a ' * 40}x{i}": "AY1" for i in range(400)})
    begun = time.process_time()
    (place,) = alike.find(f"{'a ' * 500}x399 " + "a " * 500)
    assert time.process_time() - begun < 0.5
    assert place.entry.written.endswith("x399")


def test_the_phonemes_of_an_entry_have_an_end():
    """A text may have its word thousands of times."""
    assert len(said("a a", {"a": "B " * 500})) == 1001
    with pytest.raises(InputError, match="'a' has 501 phonemes; at most 500"):
        Lexicon({"a": "B " * 501})


def test_pieces_of_a_text_are_all_of_it():
    vocab = [*phoneme_vocab(), "<laugh>"]
    tokenizer = Tokenizer("phonemes", vocab, Lexicon({"laugh": "AY1", "Łuk": "OY1", "us": "AW1"}))
    text = "Oh <laugh> Łuk’s laugh, “us” — ok."
    pieces = tokenizer.spoken(text)
    assert "".join(text[p.start : p.stop] for p in pieces) == text
    assert [t for p in pieces for t in p.tokens] == tokenizer.tokens(text)
    assert "".join(tokenizer.pieces(text)) == text
    assert tokenizer.pieces(text)[1::2] == ["<laugh>", "Łuk’s", "laugh", "us"]
    assert tokenizer.tokens(text).count("<laugh>") == 1


def test_a_file_with_comments_notes_and_both_alphabets(tmp_path):
    path = tmp_path / "words.txt"
    lines = ["# mine", "", "Nguyen\tW IH1 N\tas she says it", "tomato\ttəˈmɑːtoʊ", "is\tAA1"]
    path.write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    found = Lexicon.load(path)
    assert found.entries["tomato"].tokens == ("T", "AH0", "M", "AA1", "T", "OW0")
    assert found.entries["Nguyen"].source == f"{path}, line 3"
    both = found | Lexicon({"nguyen": "N AY1"})
    assert len(both) == 3 and both.entries["nguyen"].tokens == ("N", "AY1")


@pytest.mark.parametrize("line, wrong", [
    (b"tomato T AH0", "line 2: there is no tab in 'tomato T AH0'"),
    (b"tomato\tT XX", "line 2: 'XX'"),
    (b"tomato\t", "line 2: phonemes are missing"),
    (b"\tT AH0", "line 2: '' is no word"),
    (b"ok\tT AH1", "line 2: 'ok' has other phonemes in .*line 1"),
    (b"t\xffx\tT", "line 2: not UTF-8"),
])  # fmt: skip
def test_an_error_names_file_line_and_what_was_got(tmp_path, line, wrong, capsys):
    path = tmp_path / "words.txt"
    path.write_bytes(b"ok\tOW2 K EY1\n" + line + b"\n")
    with pytest.raises(InputError, match=rf"words\.txt, {wrong}"):
        Lexicon.load(path)
    assert main(["--text", "Hello.", "--lexicon", str(path), "--model", str(tmp_path)]) == 2
    assert "words.txt, line 2" in capsys.readouterr().err


def test_a_model_of_letters_takes_no_lexicon_but_minds_no_users_own(user_data):
    letters = Tokenizer("chars", [*" abc"])
    with pytest.raises(InputError, match="reads chars"):
        tokenizer_of(letters, {"a": "AH0"})
    lexicon_path().parent.mkdir(parents=True)
    lexicon_path().write_text("a\tEY1\n")
    assert tokenizer_of(letters, None) is letters
    assert tokenizer_of(PHONEMES, None).tokens("a") == ["EY1"]
    assert tokenizer_of(PHONEMES, "off").tokens("a") == ["AH0"]
    assert tokenizer_of(PHONEMES, {"a": "AY1"}).tokens("a") == ["AY1"]


def test_a_speaker_says_the_lexicons_words(tmp_path, user_data):
    engine = load_engine(backend="torch")
    words = {"Nguyen": "W IH1 N", "US": "AH1 S"}
    speaker = Speaker(engine, seed=0, output=OutputOptions(lexicon=words))
    (chunk,) = speaker.chunks("Nguyen of the US.")
    wanted = engine.tokenizer.ids["W"]
    tokens = speaker.chunk(chunk, 0).tokens
    assert tokens[0] == wanted or tokens[1] == wanted
    plain = Speaker(engine, seed=0)
    assert not any(plain.chunk(plain.chunks("Nguyen of the US.")[0], 0).tokens == wanted)
    assert list(encode("Nguyen", speaker.tokenizer)) == [engine.tokenizer.ids[p] for p in
                                                        ("W", "IH1", "N")]  # fmt: skip


def test_say_how_names_the_source(tmp_path, capsys):
    path = tmp_path / "words.txt"
    path.write_text("Nguyen\twɪn\n")
    assert main(["say-how", "Nguyen's", "9:30", "BBC", "new york", "--lexicon", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Nguyen's\tW IH1 N Z\t{path}, line 1"
    assert lines[1] == "# 9:30 is read as: nine thirty"
    assert lines[2] == "nine\tN AY1 N\tdictionary"
    # what is printed is a lexicon
    path.write_text("\n".join(lines))
    assert Lexicon.load(path).entries["BBC"].tokens[:2] == ("B", "IY2")
    assert main(["say-how", "They read it yesterday."]) == 0
    out = capsys.readouterr().out
    assert "read\tR EH1 D\treading by its sentence: past\n# read as now is R IY1 D" in out
    assert main(["say-how", "!"]) == 2 and "no word" in capsys.readouterr().err


def test_say_how_shows_how_another_language_is_read(capsys):
    assert main(["say-how", "Um 9:30 Uhr", "5 €", "--language", "de-AT"]) == 0
    assert capsys.readouterr().out == "Um neun Uhr dreißig\nfünf Euro\n"
    assert main(["say-how", "win", "--language", "en-GB"]) == 0
    assert capsys.readouterr().out.startswith("win\tW IH1 N")
    assert main(["say-how", "Bonjour", "--language", "fr"]) == 2
    assert "no rules for language 'fr'; there are for" in capsys.readouterr().err


def test_a_home_that_may_not_be_entered_has_no_words_and_no_voices(monkeypatch):
    real, home = os.stat, os.fspath(lexicon_path().parent)

    def stat(path, **more):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(home):
            raise PermissionError(13, "Permission denied", path)
        return real(path, **more)

    monkeypatch.setattr(os, "stat", stat)
    assert open_lexicon(None) is None and user_voices() == {}
