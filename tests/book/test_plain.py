"""Plain text and Markdown: chapters, and text without markup; passages that are cut of it."""

from __future__ import annotations

import dataclasses
import json
import random
import time

import pytest

from nanospeech import OutputOptions, SampleOptions
from nanospeech.architectures import QuantizationConfig
from nanospeech.book.opening import open_book
from nanospeech.book.passages import (
    BUDGET,
    Passage,
    cut_passages,
    headings,
    key,
    passage_key,
    speaker_facts,
)
from nanospeech.errors import InputError
from nanospeech.text.markup import Style, read_markup
from nanospeech.text.sentences import byte_length
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from tests.conftest import tone
from tests.speech.test_speaker import EchoEngine, speaker

MARKDOWN = """---
title: "Das Buch"
author: Ann Onym
lang: de
---
# The Book

## One

It was **dark**[^1] and *very \\*late\\**. See [the site](http://x.y/a_(b)) now ![p](a(1).png).

[^1]: A note.
    It goes on.

- one item
- [x] two _items_ of snake_case_words

| a | b |
|---|---|
| 1 | 2 |

> quoted
> text

```python
x = 1
```

### Within

<em>Tagged</em> text, 2*3*4.

***

Two
---

The end.
"""
NOVEL = """A NOVEL

CONTENTS

Chapter I

Chapter II

Chapter III

CHAPTER I.
The Start

It was a _dark_ night
and stormy.

Chapter two of my life had begun.

CHAPTER II.

The end.

Epilogue

Really.
"""


WAVE = tone(1.5)


def read(path, text: str) -> list[tuple[str, str]]:
    path.write_text(text, encoding="utf-8")
    return [(c.title, c.read()) for c in open_book(path).chapters]


def test_markdown_is_cut_at_headings_and_read_without_marks(tmp_path):
    path = tmp_path / "b.md"
    assert read(path, MARKDOWN) == [
        (
            "One",
            "# The Book\n\n# One\n\nIt was dark and very *late*. See the site now .\n\n"
            "one item\n\ntwo items of snake_case_words\n\na, b\n\n1, 2\n\nquoted\ntext\n\n"
            "# Within\n\nTagged text, 2*3*4.",
        ),
        ("Two", "# Two\n\nThe end."),
    ]
    book = open_book(path)
    assert (book.title, book.author, book.language) == ("Das Buch", "Ann Onym", "de")


def test_a_book_is_called_by_its_uppermost_heading(tmp_path):
    path = tmp_path / "a_file.md"
    assert read(path, "A Tale\n=\n\nOne\n--\n\nIt was.\n\nTwo\n-----\n\nIt is.") == [
        ("One", "# A Tale\n\n# One\n\nIt was."),
        ("Two", "# Two\n\nIt is."),
    ]
    assert open_book(path).title == "A Tale"
    assert read(path, "It was.")[0][0] == "Part 1" and open_book(path).title == "a file"


def test_a_heading_without_text_is_a_chapter_but_in_a_list_of_three(tmp_path):
    assert read(tmp_path / "b.md", "# A\n\n# B\n\nIt was.") == [
        ("A", "# A"),
        ("B", "# B\n\nIt was."),
    ]
    two, ends = "Part 1\n\nChapter 1\n\nIt was.", "\n\nChapter 2\n\nThe end."
    titles = [title for title, _ in read(tmp_path / "b.txt", two + ends)]
    assert titles == ["Part 1", "Chapter 1", "Chapter 2"]
    three = "Chapter 1\n\nChapter 2\n\nChapter 1\n\nIt was."
    assert [said for _, said in read(tmp_path / "b.txt", three + ends)] == [
        "Chapter 1\n\nChapter 2",
        "# Chapter 1\n\nIt was.",
        "# Chapter 2\n\nThe end.",
    ]


def test_items_comments_and_entities_of_markdown(tmp_path):
    text = "Bring:\n- milk,\n  cold\n* <b>two</b> eggs\n1. First\n2) then\n\n"
    text += "In the year of\n1986. it was.\n\n<details><summary>More</summary>behind it</details>"
    text += "<!-- not\n\nread -->\n\nR&amp;D&nbsp;&mdash; AT&T; &#8217;twas `&lt;`"
    ((_, said),) = read(tmp_path / "b.md", text)
    assert said.split("\n\n") == [
        *("Bring:", "milk,\n  cold", "two eggs", "1. First", "2) then"),
        *("In the year of\n1986. it was.", "More", "behind it"),
        "R&D\xa0— AT&T; ’twas <",
    ]


def test_a_novel_is_cut_at_its_chapters_and_not_at_their_list(tmp_path):
    found = read(tmp_path / "a_novel.txt", NOVEL)
    assert open_book(tmp_path / "a_novel.txt").title == "a novel"
    assert found == [
        ("Part 1", "A NOVEL\n\nCONTENTS\n\nChapter I\n\nChapter II\n\nChapter III"),
        (
            "CHAPTER I. The Start",
            "# CHAPTER I. The Start\n\nIt was a dark night\nand stormy.\n\n"
            "Chapter two of my life had begun.",
        ),
        ("CHAPTER II.", "# CHAPTER II.\n\nThe end."),
        ("Epilogue", "# Epilogue\n\nReally."),
    ]


@pytest.mark.parametrize("the", ["THE", "THIS"])
def test_a_book_of_project_gutenberg_has_its_facts_and_no_licence(tmp_path, the):
    path = tmp_path / "pg1.txt"
    mark = f"*** {{}} OF {the} PROJECT GUTENBERG EBOOK THE QUAY,\nA TALE ***"
    head = "\ufeffThe Project Gutenberg eBook of The Quay\n\nTitle: The Quay\n        A Tale\n\n"
    head += "Author: Ann Onym\n\nLanguage: English\n\n" + mark.format("START")
    body = "\n\nBy Ann Onym\n\nCHAPTER I.\n\nIt was.\n\nCHAPTER II.\n\nIt is.\n\n"
    licence = "\n\nTHE FULL LICENSE\n\nSection 1. General Terms\n\n1.A. By reading you agree."
    whole = head + body + mark.format("END") + licence
    assert read(path, whole.replace("\n", "\r\n")) == [
        ("Part 1", "By Ann Onym"),
        ("CHAPTER I.", "# CHAPTER I.\n\nIt was."),
        ("CHAPTER II.", "# CHAPTER II.\n\nIt is."),
    ]
    book = open_book(path)
    assert (book.title, book.author, book.language) == ("The Quay A Tale", "Ann Onym", "")
    assert read(path, head + body)[-1] == ("CHAPTER II.", "# CHAPTER II.\n\nIt is.")
    assert read(path, f"{mark.format('END')}\n\n{head}{body}")[-1][1].endswith("It is.")
    two = f"{mark.format('END')}\n\n{whole}{whole.replace('It is.', 'It will be.')}"
    assert all(said in str(read(path, two)) for said in ("It was.", "It is.", "It will be."))
    assert "FULL LICENSE" not in str(read(path, two)[-1])
    assert read(path, "It was.\n\n*** END OF THE WORLD ***\n\nIt is.")[0][1].endswith("It is.")


def test_lines_are_paragraphs_where_nobody_has_cut_them(tmp_path):
    long, path = " ".join(["It was so."] * 20), tmp_path / "b.txt"
    for between in ("\n", "\n\n"):
        text = between.join(["Chapter 1", long, "He said.", long, "Chapter 2", "So it is."])
        assert read(path, text) == [
            ("Chapter 1", f"# Chapter 1\n\n{long}\n\nHe said.\n\n{long}"),
            ("Chapter 2", "# Chapter 2\n\nSo it is."),
        ]
    short = "It was\nso and it\nwas so."
    for text in (short, f"{long}\n\n{short}", f"{long}\n{short}\n\n{long}\n\n{long}"):
        assert short in read(path, text)[0][1]


@pytest.mark.parametrize("name", ["b.md", "b.txt"])
def test_a_rule_that_a_book_begins_with_costs_none_of_it(tmp_path, name):
    first, second = "# One\n\nIt was: so.", "# Two\n\nIt is."
    text = f"---\n\n{first}\n\n---\n\n{second}\n"
    assert read(tmp_path / name, text) == [("One", first), ("Two", second)]


@pytest.mark.parametrize(
    ("front", "title", "author"),
    [
        ("title: 'A: b'\nauthor:\n  - Ann Onym\n  - \"Bob\"", "A: b", "Ann Onym, Bob"),
        (
            "title: >-\n  A long\n  title\nauthor: ['Ann Onym', Bob]",
            "A long title",
            "Ann Onym, Bob",
        ),
        ("author:\n- name: Ann\ntitle: A [2nd ed.]\nlang: en", "A [2nd ed.]", "Ann"),
        ("title:\nauthor: |\n", "b", ""),
        ("author: [Ann, , Bob,]", "b", "Ann, Bob"),
    ],
)
def test_front_matter_has_lists_and_texts_of_several_lines(tmp_path, front, title, author):
    path = tmp_path / "b.md"
    assert read(path, f"---\n{front}\n---\n\nIt was.") == [("Part 1", "It was.")]
    assert (open_book(path).title, open_book(path).author) == (title, author)


def test_names_of_headings_and_long_notes_are_not_read(tmp_path):
    text = "# One {#one .big}\n\nIt was.[^a]\n\n[^a]: A note.\n\n    It goes on.\n\n"
    text += "# C# {-}\n\nIt is.\n\n# {Three} # {: .x}\n\nIt ends {#x}."
    assert read(tmp_path / "b.md", text) == [
        ("One", "# One\n\nIt was."),
        ("C#", "# C#\n\nIt is."),
        ("{Three}", "# {Three}\n\nIt ends {#x}."),
    ]


def test_a_text_without_headings_is_one_chapter(tmp_path):
    assert read(tmp_path / "a.txt", "Just\r\nthis.\r\n\r\nAnd that.") == [
        ("Part 1", "Just\nthis.\n\nAnd that.")
    ]
    (tmp_path / "l.txt").write_bytes("Käfer".encode("latin-1"))
    with pytest.raises(InputError, match="add --encoding cp1252"):
        open_book(tmp_path / "l.txt")
    assert open_book(tmp_path / "l.txt", "latin-1").chapters[0].read() == "Käfer"


def test_passages_have_all_words_and_end_between_paragraphs_or_sentences():
    long = " ".join(f"Sentence {i} is here." for i in range(100))
    text = f"# Title\n\n{long}\n\nShort one.\n\n" + "\n\n".join(
        f"A paragraph with the number {i}, of some length." for i in range(40)
    )
    text += f"\n\nA Heading\n\n{'x ' * 300}.\n\n* * *\n\nLast."
    found = cut_passages(text)
    assert " ".join(p.text for p in found).split() == text.split()
    assert max(byte_length(p.text) for p in found) <= 900
    assert sum(byte_length(p.text) for p in found) / len(found) > 400
    assert found[0].text.startswith("# Title\n\nSentence 0")
    assert not any(p.text.endswith("A Heading") for p in found)
    for p in found:
        assert p.text[-1] in ".*" and p.after == ("sentence" if p.text[-2] == "e" else "paragraph")


def test_a_sentence_that_is_cut_has_the_pause_of_its_mark():
    text = "it was the best of times, " * 40 + "so it went. " + "it was the age " * 60 + "of men."
    found = cut_passages(text)
    ends = [p.text[-1] if p.text[-1] in ",." else "" for p in found]
    assert ends == [",", ".", "", "."]
    assert [p.after for p in found] == ["clause", "sentence", "", "paragraph"]


def test_a_heading_is_never_left_alone_and_silence_is_no_passage():
    block = "b" * 590
    found = cut_passages(f"{block}\n\n# One\n\n## Two\n\n{block}")
    assert found == [
        Passage(block, "paragraph"),
        Passage(f"# One\n\n## Two\n\n{block}", "paragraph"),
    ]
    assert cut_passages("* * *\n\n---") == [] and cut_passages("") == []


def test_a_few_headings_go_with_what_follows_and_a_list_of_them_does_not():
    assert headings(["It was.", *["# A"] * 4]) == 4
    assert headings(["It was.", *["# A"] * 5]) == 0
    assert headings(["It was.", *["A line"] * 4, "# A"]) == 1


def test_a_chapter_of_short_lines_is_no_single_passage():
    lines = [f"Whales of the sea, {i}" for i in range(300)]
    passages = cut_passages("\n\n".join(lines))
    assert "\n\n".join(p.text for p in passages).split("\n\n") == lines
    assert max(len(p.text) for p in passages) <= BUDGET
    passages = cut_passages("\n\n".join([*lines, "# The end", "b" * 590]))
    assert passages[-1].text.startswith("# The end")


def test_a_key_changes_with_words_voice_and_settings_alone():
    facts = {"seed": 0, "options": {"steps": 7}}
    assert key("a", facts) == key("a", {"options": {"steps": 7}, "seed": 0})
    others = [("b", facts), ("a", {**facts, "seed": 1}), ("a", {**facts, "options": {"steps": 8}})]
    assert len({key("a", facts), *(key(*other) for other in others)}) == 4


def test_what_changes_speech_changes_the_keys_of_its_passages(tmp_path):
    weights = bytes((2 << 20) + 1)

    def made(name: str, at: int | None = None, **config: int) -> EchoEngine:
        """An engine whose folder has these weights, or one of them changed."""
        engine = EchoEngine()
        engine.folder = tmp_path / name
        engine.folder.mkdir()
        changed = bytearray(weights)
        if at is not None:
            changed[at] = 1
        (engine.folder / "model.safetensors").write_bytes(changed)
        (engine.folder / "config.json").write_text(json.dumps(config), "utf-8")
        (engine.folder / "README.md").write_text(name, "utf-8")  # says nothing of the speech
        return engine

    def key_of(engine: EchoEngine, **options) -> str:
        who = speaker(engine, wave=WAVE, **options)
        return passage_key(Passage("Hello.", ""), who, speaker_facts(who))

    def spelt(sounds: str) -> dict:
        engine = EchoEngine()
        engine.tokenizer = Tokenizer("phonemes", phoneme_vocab())
        return {"engine": engine, "output": OutputOptions(lexicon={"Hello": sounds})}

    plain = EchoEngine()
    changes = [
        {"engine": plain, **more}
        for more in (
            {},
            {"seed": 4},
            {"speed": 1.5},
            {"chunk_seconds": 3.0},
            {"options": SampleOptions(steps=3)},
            {"output": OutputOptions(pause_sentence=1.0)},
            {"ref_text": "other words were said."},
        )
    ]
    changes += [{"engine": EchoEngine(seconds_per_token=0.1)}, spelt("HH AY1"), spelt("OW1")]
    engines = [EchoEngine() for _ in range(4)]
    engines[0].dtype, engines[1].rounding = "bfloat16", "float16"
    for engine, bits in zip(engines[2:], (4, 8)):
        packed = QuantizationConfig(model={"a": bits})
        engine.config = dataclasses.replace(engine.config, quantization=packed)
    changes += [{"engine": engine} for engine in engines]
    models = [made("a"), made("b", 0), made("c", -1), made("d", -(1 << 20)), made("e", depth=3)]
    changes += [{"engine": engine} for engine in models]
    keys = [key_of(**change) for change in changes]
    assert len(set(keys)) == len(keys)
    usual = EchoEngine()  # another type, which its device has by itself
    usual.dtype, usual.usual_dtype = "bfloat16", lambda _: "bfloat16"
    assert key_of(usual) == keys[0]
    assert key_of(made("same")) == key_of(models[0]) and key_of(plain, seed=3, speed=1.0) in keys


def test_a_word_of_a_lexicon_changes_the_keys_of_passages_that_have_it_alone(tmp_path):
    engine = EchoEngine()
    engine.tokenizer = Tokenizer("phonemes", phoneme_vocab())
    passages = cut_passages(
        "Dr. Hall paid $5.\n\n[spell: WWW] is Nguyen's.\n\nUS [slow]ferries[/slow].",
        budget=1,
    )

    def changed(lexicon: dict[str, str]) -> list[int]:
        """The passages that are spoken anew by one more lexicon."""
        path = tmp_path / "words.txt"
        path.write_text("\n".join(f"{w}\t{said}" for w, said in lexicon.items()), "utf-8")
        lists = [
            [passage_key(p, who, speaker_facts(who)) for p in passages]
            for words in ("off", lexicon, path)
            for who in [speaker(engine, wave=WAVE, output=OutputOptions(lexicon=words))]
        ]
        assert lists[1] == lists[2], "wherever the same words are from"
        return [i for i, (a, b) in enumerate(zip(*lists[:2])) if a != b]

    assert len(passages) == 3
    assert changed({"Hall": "HH AO1 L"}) == [0] and changed({"Hallo": "HH AA1"}) == []
    assert changed({"doctor": "D AA1 K"}) == [0] == changed({"Dr.": "D AA1 K"})
    assert changed({"five dollars": "F AY1 V"}) == [0]
    assert changed({"Nguyen": "W IH1 N"}) == [1] and changed({"US": "Y UW1"}) == [2]
    assert changed({"W": "D AH1"}) == [1], "what is said for a word"
    assert changed({"ferries": "F EH1", "Nguyen": "W IH1 N"}) == [1, 2]


def test_speakers_that_are_marked_have_passages_of_their_own():
    found = cut_passages(
        "He came in.\n\n[voice: kumo]“Is it late?”[/voice] she asked, [voice:sora]and\n\nwent."
        "\n\n[/voice]\n\nThe end."
    )
    assert found == [
        Passage("He came in.", "paragraph"),
        Passage("“Is it late?”", "sentence", "kumo"),
        Passage("she asked,", "clause"),
        Passage("and\n\nwent.", "paragraph", "sora"),
        Passage("The end.", "paragraph"),
    ]
    assert cut_passages("a [citation needed] b")[0].text == "a [citation needed] b"
    assert cut_passages("a [pause 1s] b", markup=False)[0] == Passage("a [pause 1s] b", "paragraph")
    nested = cut_passages("[voice: a]One. [voice: b]Two.[/voice] Three.[/voice]\n\nFour.")
    assert [(p.text, p.voice) for p in nested] == [
        ("One.", "a"), ("Two.", "b"), ("Three.", "a"), ("Four.", ""),
    ]  # fmt: skip
    for broken in ("a\n[voice: kumo] a", "a\n[/voice]", "a\n[voice:]b[/voice]"):
        with pytest.raises(InputError, match="at line 2, column 1"):
            cut_passages(broken)


def marked(passage: Passage) -> list[tuple]:
    spans = passage.marked.spans if passage.marked else ()
    return [(s.written.text.strip(), s.said.text.strip(), s.style, s.after) for s in spans]


def test_a_book_is_spoken_as_its_markup_says():
    (first, second, last) = cut_passages(
        "[pause 2s]# One\n\nWell [pause 500ms] it is [slow]very[/slow], [say: late | L EY1 T]."
        "[pause 1s] [voice: kumo][fast]Is it?[/fast][/voice][pause 3s] Yes [pause for effect] so."
    )
    assert first.before == 2.0 and not second.before
    assert (first.text, first.after) == ("# One\n\nWell  it is very, late.", 1.0)
    assert marked(first) == [
        ("# One\n\nWell", "# One\n\nWell", Style(), 0.5),
        ("it is", "it is", Style(), None),
        ("very,", "very,", Style(0.8), None),
        ("late.", "late\u2060.", Style(), None),
    ]
    assert (second.voice, second.after) == ("kumo", 3.0)
    assert marked(second) == [("Is it?", "Is it?", Style(1.25), None)]  # whose voice it has
    assert last == Passage("Yes [pause for effect] so.", "paragraph")
    assert key(first.content, {}) != key(first.text, {}) == key(Passage(first.text, "").content, {})


PIECES = [
    "One two three.",
    "a, b",
    "\n\n",
    "\n\n\n",
    "[slow]s t.[/slow]",
    "[pause 300ms]",
    "# H\n\n",
    "[say: New York | N UW1 | Y AO1 R K]",
    "[spell: ABC]",
    "[fast]p. q\n\nr[/fast]",
    "[voice: v]u. w\n\n[slow]x[/slow] y[/voice]",
    "word " * 30,
]


def test_markup_is_cut_with_its_paragraphs_and_no_word_of_it_is_lost():
    def solid(texts) -> str:
        return "".join("".join(texts).split())

    def seconds(pauses) -> float:
        return sum(pause for pause in pauses if isinstance(pause, float))

    rng = random.Random(0)
    for _ in range(300):
        text = " ".join(rng.choices(PIECES, k=rng.randint(1, 25)))
        whole = read_markup(text, lenient=True).spans
        found = cut_passages(text, budget=60, most=90)
        spans = [s for p in found for s in (p.marked.spans if p.marked else ())]
        assert solid(p.text for p in found) == solid(s.written.text for s in whole)
        said = ([s.said.text for s in p.marked.spans] if p.marked else [p.text] for p in found)
        assert solid(solid(texts) for texts in said) == solid(s.said.text for s in whole)
        for span in spans:
            assert len(span.said) == len(span.said.starts) == len(span.said.stops)
            assert span.said.starts.min() >= 0 and span.said.stops.max() <= len(span.written)
        asked = seconds(s.after for s in whole)
        kept = seconds(s.after for s in spans) + seconds(p.after for p in found)
        assert kept == pytest.approx(asked)


def test_markup_of_markdown_is_no_link_and_code_is_no_markup(tmp_path):
    text = (
        '# One [pause 1s]\n\n[voice: a]"Hi."[/voice][voice: b]"Yes."[/voice] [slow](see)[/slow], '
        r"**[fast]x[/fast]**, `[pause 1s]`, ``[slow]``, \[pause 2s\], [slow](docs/slow.md) [t](u)."
    )
    assert read(tmp_path / "b.md", text) == [
        (
            "One",
            '# One [pause 1s]\n\n[voice: a]"Hi."[/voice][voice: b]"Yes."[/voice] '
            r"[slow](see)[/slow], [fast]x[/fast], \[pause 1s], \[slow], \[pause 2s], slow t.",
        )
    ]
    (_, said) = read(tmp_path / "b.md", text)[0]
    last = cut_passages(said)[-1]
    assert last.text.endswith("x, [pause 1s], [slow], [pause 2s], slow t.")
    assert cut_passages(said, markup=False)[0].text.endswith("[slow], [pause 2s], slow t.")


def test_links_in_angle_brackets_are_read(tmp_path):
    text = "See <https://a.b/c> or <me@x.org>, <mailto:you@x.org> and <b>bold</b>."
    ((_, said),) = read(tmp_path / "b.md", text)
    assert said == "See https://a.b/c or me@x.org, you@x.org and bold."


@pytest.mark.parametrize("text, wanted", [
    ("See [the\nsite](http://x.y).", "See the\nsite."),
    ('See [the\nsite](http://x.y\n"Title").', "See the\nsite."),
    ("> See [the\n> site][1].", "See the\nsite."),
    ("See [the [new] site](http://x.y).", "See the [new] site."),
    ("See [![a\ncat](a.png)](http://x.y)it.", "See it."),
    (r"So it was.[\[a\]](#note)", "So it was.[a]"),
])  # fmt: skip
def test_where_a_link_over_two_lines_or_with_brackets_leads_is_not_read(tmp_path, text, wanted):
    ((_, said),) = read(tmp_path / "b.md", text)
    assert said == wanted


@pytest.mark.parametrize("line", ["- one", "* one", "> one"])
def test_a_rule_under_an_item_or_a_quotation_makes_no_heading_of_it(tmp_path, line):
    text = f"## A\n\n{line}\n---\n\nIt was.\n\n## B\n\n{line}\n---\n\nIt is."
    assert read(tmp_path / "b.md", text) == [
        ("A", "# A\n\none\n\nIt was."),
        ("B", "# B\n\none\n\nIt is."),
    ]


@pytest.mark.parametrize("after", ["", "[^2]: So\nit is.\n", "# Two", "- Two", "> Two", "| Two |"])
def test_a_footnote_is_left_out_to_its_last_line(tmp_path, after):
    text = f"One[^1] ^[It is [so]\nsaid.]it was.\n\n[^1]: A note\nthat goes\non.\n{after}\n\nEnd."
    said = "\n".join(said for _, said in read(tmp_path / "b.md", text))
    two = ["Two"] if "Two" in after else []
    assert said.replace("#", "").split() == ["One", "it", "was.", *two, "End."]


@pytest.mark.parametrize("text, wanted", [
    ("> One<br>\n> and <b>two</b>.\n>\n> Three.", "One and two.\n\nThree."),
    ("> ## Note\n> It was:\n> - one\n> - two\n>\n> ---\n", "# Note\n\nIt was:\n\none\n\ntwo"),
    ("One\\\nand <b>two</b>.", "One and two."),
])  # fmt: skip
def test_a_quotation_is_read_as_what_it_quotes(tmp_path, text, wanted):
    ((_, said),) = read(tmp_path / "b.md", f"# Title\n\n{text}")
    assert said == f"# Title\n\n{wanted}"


@pytest.mark.parametrize("line", ["::: {#a .note}", ":::: warning ::::", ":::tip", ":::"])
def test_lines_around_a_part_with_attributes_are_not_read(tmp_path, line):
    ((_, said),) = read(tmp_path / "b.md", f"# Title\n\nOne.\n{line}\nTwo ::: a.\n:::\nThree.")
    assert said == "# Title\n\nOne.\n\nTwo ::: a.\n\nThree."


@pytest.mark.parametrize(
    ("text", "kind"),
    [("*a " * 10_000, "md"), ("<!-- a " * 10_000, "md"), ("![a " * 10_000, "md")]
    + [(" _a" * 20_000, "txt"), ("a" + " " * 100_000 + "b", "md")]
    + [("| - |" + "      |" * 20 + " sum |\n\na", "md")]
    + [("# a" + " " * 10_000 + "b", "md"), ("# a " + "{# " * 10_000 + "b", "txt")]
    + [("[a](b()" * 10_000 + "b", "md"), ("[[a](b (\n" * 10_000 + "b", "md")]
    + [("`" * 60_000 + "\na", "md"), ("~" * 200_000 + "\na", "md")],
    ids=["stars", "comments", "brackets", "underscores", "spaces", "table", "heading", "names"]
    + ["links", "lines of links", "code", "fences"],
)
def test_signs_without_their_end_are_not_looked_for_again_and_again(tmp_path, text, kind):
    path = tmp_path / f"b.{kind}"
    path.write_text(text)
    begin = time.process_time()
    assert [chapter.read()[-1:] for chapter in open_book(path).chapters] in (["a"], ["b"])
    assert time.process_time() - begin < 8


def test_sounds_of_one_passage_are_no_part_of_anothers_key():
    """Where they were corrected, all passages with markup would be spoken anew."""
    text = "[say: tomato | T AH0 M AA1 T OW0].\n\n[voice: kumo][slow]Two.[/slow][/voice]"
    first, second = cut_passages(text)
    assert list(first.content[-1].values()) == ["T AH0 M AA1 T OW0"] and second.content[-1] == {}


@pytest.mark.parametrize("said", ["", "It was late.\n\n"])
def test_the_time_for_the_chapters_of_a_text_grows_as_their_number(said, tmp_path):
    path, count = tmp_path / "b.txt", 30_000
    path.write_text("".join(f"Chapter 1\nOn {n}\n\n{said}" for n in range(count)) + "End.", "utf-8")
    begin = time.process_time()
    assert len(open_book(path).chapters) == (count if said else 2)
    assert time.process_time() - begin < 4
