"""Text: splitting loses nothing, numbers become words, typography becomes one spelling."""

import random

import pytest

from nanospeech import InputError
from nanospeech.text.normalize import cardinal, expand, ordinal
from nanospeech.text.sentences import (
    byte_length,
    encode,
    fit,
    fold,
    pack,
    prepare,
    readable,
    shorten,
    split_sentences,
)
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech.text.traced import Traced

LOWER = Tokenizer("chars", list(" abcdefghijklmnopqrstuvwxyz.,'!?"))
PHONEMES = Tokenizer("phonemes", phoneme_vocab())
BYTES = Tokenizer("bytes", [])

SPLITS = [
    ["Hello. ", "How are you? ", "Fine!"],
    ["Pi is 3.14 and not 3. ", "No end"],
    ["Dr. Smith met Mrs. Hall at 10:30. ", "They left."],
    ["Fruit, e.g. apples, i.e. good ones. ", "See fig. 3. ", "No. 5 is alive. ", "No. ", "Really."],
    ["J. R. R. Tolkien wrote it. ", "So did I. ", "He lives in the U.S. today."],
    ['"Stop!" he said. ', '"Why?" ', "She left."],
    ["He left... then came back. ", "Wait... ", "Now."],
    ["1. Bread. ", "2. Milk."],
    ["A title\n\n", "The story goes\non here. ", "It ends."],
    ["你好。", "今天天气很好！", "是吗？", "没有标点"],
    ["Inc. and Co. are short. ", "He bought bread etc. ", "Then he left."],
    ["Visit example.com now. ", "It is v1.2.3!!! ", "(Really.) ", "Yes?!"],
    ["hello there. ", "general."],
    ["We have\n1. bread and\n 22. milk. ", "They came\nin 1986. ", "I saw 12. ", "Then none."],
    ["The no. of men rose. ", "I said no. ", "Of course."],
    ["Bldg. 5, Rm. 12, see Tab. 3 and Ref. 4. ", "On Mon. or Tue. we left, a.k.a. late. ", "Bye."],
    ["Add 1 tsp. salt and bake 20 min. or until golden, max. 30 min. ", "Then serve."],
    ["Mt. Everest, Ft. Worth, Apt. 4B, Rte. 66 and Roe v. Wade. ", "He is 6 ft. ", "Yes."],
    [
        "She has a Ph.D. and an M.Phil. in law from ca. 1990. ",
        "See n. 12 and Ps. 23. ",
        "It took 5 hrs. of work. ",
        "So it ended.",
    ],
]


@pytest.mark.parametrize("sentences", SPLITS, ids=lambda s: s[0][:20])
def test_sentences_end_where_readers_say(sentences):
    assert split_sentences("".join(sentences)) == sentences


def messy_text(seed: int) -> str:
    parts = (
        'word Dr. 3.14 ... ? ! " ) ( 。 ，你好 é \n \n\n \t , ; : - — e.g. I. U.S. x'
        + " longword" * 2
    )
    rng = random.Random(seed)
    return "".join(rng.choice(parts.split(" ")) + rng.choice(["", " ", "  "]) for _ in range(60))


@pytest.mark.parametrize("seed", range(30))
def test_splitting_and_packing_lose_no_character(seed):
    text = messy_text(seed)
    assert "".join(split_sentences(text)) == text
    for budget in (4, 20, 75, 10_000):
        chunks = pack(text, budget)
        assert "".join(chunks) == text
        assert all(byte_length(c) <= budget for c in chunks)
        assert all(chunks)


def test_empty_text_has_no_sentences():
    assert split_sentences("") == [] and pack("", 10) == []


def test_a_long_sentence_is_cut_at_clauses_into_even_shares():
    text = (
        "One clause of some length, another clause of some length, and a third one of such length."
    )
    first, second = pack(text, 70)
    assert first.endswith(", ") and abs(len(first) - len(second)) < 40
    assert list(map(len, pack("word " * 14, 60))) == [40, 30]  # and not 60, and two words more
    words = pack("word " * 40, 33)
    assert {w for c in words for w in c.split()} == {"word"} and len(words) <= 8


def test_short_sentences_share_a_chunk_but_paragraphs_do_not():
    assert pack("Yes. No. Maybe.", 100) == ["Yes. No. Maybe."]
    assert pack("Title\n\nText.", 100) == ["Title\n\n", "Text."]


def test_fold_is_one_spelling_and_idempotent():
    folded = fold("“Hi” — it’s\u00a0an of\u00adfer…\r\n\r\n\r\n  ﬁne\tＡ１ ")
    assert folded == '"Hi" - it\'s an offer...\n\nfine A1'
    assert fold(folded) == folded
    assert fold("你好，世界。 שלום नमस्ते") == "你好，世界。 שלום नमस्ते"
    assert fold("e\u0301") == "é"
    for half in ("\ud800", "\udcff", "\udfff"):
        with pytest.raises(InputError, match="UTF-8"):
            fold(f"bad {half}")
    assert fold("\ud7ff\ue000") == "\ud7ff\ue000"  # what stands beside them is text


@pytest.mark.parametrize(
    "written, spoken",
    [
        ("0 and 7, 13, 42, 100, 115.", "zero and seven, thirteen, forty-two, one hundred, "
         "one hundred fifteen."),
        ("1,234,567 of 10,000", "one million two hundred thirty-four thousand five hundred "
         "sixty-seven of ten thousand"),
        ("It is 3.14, not -5.", "It is three point one four, not minus five."),
        ("the 1st, 2nd, 3rd, 12th, 20th and 101st", "the first, second, third, twelfth, "
         "twentieth and one hundred first"),
        ("In 1066, 1999, 1905, 1900, 2000, 2005 and 2024.", "In ten sixty-six, nineteen "
         "ninety-nine, nineteen oh five, nineteen hundred, two thousand, two thousand five and "
         "twenty twenty-four."),
        ("the 1990s", "the nineteen nineties"),
        ("$3.50, $1, £20 and $2.5 million", "three dollars and fifty cents, one dollar, twenty "
         "pounds and two point five million dollars"),
        ("50% or 0.5 %", "fifty percent or zero point five percent"),
        ("10:30, 9:05 and 12:00", "ten thirty, nine oh five and twelve o'clock"),
        ("Come at 5 p.m. We eat.", "Come at five pee em. We eat."),
        ("Dr. Who, Mr Bean, Mrs. Hall of St. Ives", "Doctor Who, Mister Bean, Missus Hall of "
         "Saint Ives"),
        ("NASA is in the USA.", "NASA is in the USA."),
        ("e.g. bread, etc.", "for example bread, et cetera."),
        ("No. 5. No. Yes.", "number five. No. Yes."),
        ("pages 10-20, call 555-1234", "pages ten to twenty, call five five five, one two three "
         "four"),
        ("007 on mp3", "zero zero seven on mp three"),
        ("R&D weighs 5 kg", "R and D weighs five kilograms"),
        ("Nothing to do here.", "Nothing to do here."),
    ],
)  # fmt: skip
def test_english_is_written_out(written, spoken):
    assert expand(written) == spoken


@pytest.mark.parametrize("seed", range(20))
def test_no_digit_survives_expansion(seed):
    rng = random.Random(seed)
    text = "".join(rng.choice("0123456789,.:-$% /thams") for _ in range(80))
    assert not any(c in "0123456789" for c in expand(text))


def test_cardinals_are_distinct_and_ordinals_end_as_such():
    numbers = [*range(2000), 10**6, 10**9 + 1, 10**14]
    assert len({cardinal(n) for n in numbers}) == len(numbers)
    assert all(ordinal(n).endswith(("first", "second", "third", "th")) for n in numbers)


def test_only_spelling_english_models_get_words_for_digits():
    assert prepare("5 km", LOWER) == prepare("5 km", PHONEMES) == "five kilometers"
    assert prepare("5 km", BYTES) == "5 km"
    assert prepare("5 km", Tokenizer("chars", list("ae 5km"))) == "5 km"  # was trained on digits
    assert prepare("5 км", Tokenizer("chars", list("абв "))) == "5 км"


def test_characters_outside_the_vocabulary_are_respelled_or_named():
    fitted, lost = fit('The Café: "naïve" — Straße 你', LOWER)
    assert " ".join(fitted.split()) == "the cafe, naive strasse" and lost == {"你"}
    assert fit("plain text.", LOWER) == ("plain text.", set())
    assert fit("Ünï 你", BYTES) == ("Ünï 你", set())
    assert len(encode("HELLO", LOWER)) == 5


# Marks that a text has hundreds of.

MANY = ["." * 500, ". " * 500, "…" * 500, "?!" * 250, " - " * 300, "-" * 500, "," * 500, "_" * 500]
MANY += ["。" * 400, '"(' * 300, "\u0301" * 500, ":;" * 300, "•" * 300, ".\n" * 300, "*\t" * 200]
MANY += [
    "?!.,;:-" * 100,
    "🙂" * 300,
    "\u200d." * 200,
    "=-" * 200,
    "|---" * 100,
    "→" * 300,
    "<>" * 200,
]


@pytest.mark.parametrize("tokenizer", [LOWER, PHONEMES, BYTES], ids=lambda t: t.kind)
@pytest.mark.parametrize("marks", MANY, ids=lambda m: ascii(m[:4]))
def test_runs_of_marks_are_bounded_whatever_reads_them(marks, tokenizer):
    for text in (f"a{marks}", f"a {marks} b", f"{marks}a", f'"a{marks}" {marks} b'):
        read = readable(text, tokenizer)
        plain = readable(text.replace(marks, " "), tokenizer)
        # eight marks at each of two places, the longest of which is read "greater than"
        most = len(tokenizer.tokens(plain)) + 2 * 8 * len("greater than ")
        assert len(tokenizer.tokens(read)) <= most, read


def test_dots_beyond_three_say_nothing_more():
    assert fold("a" + "." * 500) == fold("a....") == "a..."
    assert fold("wait . . . . . here") == "wait . . . here"
    assert prepare("a" + "." * 500, BYTES) == "a..."
    assert prepare("What?!?!?!?!?!?! No.", LOWER) == "What?!?!?!?! No."
    assert prepare("a\n\n.\n\n.\n\n.\n\n.\n\n.\n\nb", BYTES) == "a\n\n.\n\n.\n\n.\n\nb"


@pytest.mark.parametrize("seed", range(20))
def test_no_letter_goes_with_long_runs_of_marks(seed):
    rng = random.Random(seed)
    text = "".join(rng.choice(["a", "é", "7", "你", *'.!?… -"(', "\n"]) for _ in range(2000))
    short = shorten(Traced.of(text)).text
    assert [c for c in short if c.isalnum()] == [c for c in text if c.isalnum()]
    assert shorten(Traced.of(short)).text == short and fold(fold(text)) == fold(text)
    usual = 'He said: "Wait..." (twice!); she - well - left?!\n\nThe end. . .'
    assert shorten(Traced.of(usual)).text == usual


def test_long_runs_of_marks_take_no_time():
    import time

    began = time.perf_counter()
    for marks in ("." * 200_000, ". " * 100_000, "." + " " * 200_000, '".' * 100_000):
        shorten(Traced.of(f"a{marks}b"))
    assert time.perf_counter() - began < 30  # the square of it would be hours


# Tokens of several characters.

TAGGED = Tokenizer("chars", [*LOWER.vocab, "<laugh>", "(clears throat)", "[5 dollars]", "sh"])


@pytest.mark.parametrize("tokenizer", [TAGGED, Tokenizer("phonemes", [*PHONEMES.vocab, "<laugh>"])])
def test_tags_of_a_vocabulary_reach_the_tokenizer_whole(tokenizer, caplog):
    text = "I paid $5 <laugh>, <laugh>3 < 4 <LAUGH> — Dr.<laugh> “Oh”<laugh>"
    read = readable(text, tokenizer)
    assert read.count("<laugh>") == 4
    assert "five dollars <laugh>, <laugh>three less than four" in read
    assert list(encode(read, tokenizer)).count(tokenizer.ids["<laugh>"]) == 4
    assert readable(text.replace("<laugh>", ""), tokenizer).count("<laugh>") == 0
    assert not caplog.text


def test_what_is_written_in_a_tag_is_not_read_as_english():
    read = readable(
        "Hm (clears throat) that is [5 dollars] & $5. <laugh><laugh><laugh><laugh>", TAGGED
    )
    assert read == (
        "Hm (clears throat) that is [5 dollars] and five dollars. <laugh><laugh><laugh><laugh>"
    )
    ids = encode(read, TAGGED)
    assert [TAGGED.vocab[i] for i in ids if len(TAGGED.vocab[i]) > 1] == [
        "(clears throat)",
        "[5 dollars]",
        *["<laugh>"] * 4,
    ]
    # a vocabulary without the tag gets the words in it
    assert readable("oh <laugh>", LOWER) == "oh laugh"


def test_tags_stay_whole_where_signs_of_theirs_are_unknown_elsewhere():
    """A model that is not English: "<" has no name, and is left out but for the tag."""
    russian = Tokenizer("chars", [*"абв ,.", "<смех>"])
    assert encode("а < б <смех> в", russian).tolist() == [0, 3, 1, 6, 2]
    assert readable("а < б <смех> в", russian) == "а  б <смех> в"
    # characters that stand for hidden tags are nothing special in a text
    assert encode("а \U00100000 <смех>", russian).tolist() == [0, 6]
