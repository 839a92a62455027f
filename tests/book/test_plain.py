"""Plain text and Markdown: chapters, and text without markup; passages that are cut of it."""

from __future__ import annotations

import pytest

from nanospeech.book.opening import open_book
from nanospeech.book.passages import Passage, cut_passages, key
from nanospeech.errors import InputError
from nanospeech.text.sentences import byte_length

MARKDOWN = """---
title: "The Book"
author: Ann Onym
lang: de
---
# The Book

## One

It was **dark**[^1] and *very \\*late\\**. See [the site](http://x.y/a_(b)) now ![p](a.png).

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


def read(path, text: str) -> list[tuple[str, str]]:
    path.write_text(text, encoding="utf-8")
    return [(c.title, c.read()) for c in open_book(path).chapters]


def test_markdown_is_cut_at_headings_and_read_without_marks(tmp_path):
    path = tmp_path / "b.md"
    assert read(path, MARKDOWN) == [
        (
            "One",
            "# The Book\n\n# One\n\nIt was dark and very *late*. See the site) now .\n\n"
            "one item\ntwo items of snake_case_words\n\na, b\n\n1, 2\n\nquoted\ntext\n\n"
            "# Within\n\nTagged text, 2*3*4.",
        ),
        ("Two", "# Two\n\nThe end."),
    ]
    book = open_book(path)
    assert (book.title, book.author, book.language) == ("The Book", "Ann Onym", "de")


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


def test_a_text_without_headings_is_one_chapter(tmp_path):
    assert read(tmp_path / "a.txt", "Just\r\nthis.\r\n\r\nAnd that.") == [
        ("Part 1", "Just\nthis.\n\nAnd that.")
    ]
    (tmp_path / "l.txt").write_bytes("Käfer".encode("latin-1"))
    with pytest.raises(InputError, match="add --encoding latin-1"):
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


def test_a_heading_is_never_left_alone_and_silence_is_no_passage():
    block = "b" * 590
    found = cut_passages(f"{block}\n\n# One\n\n## Two\n\n{block}")
    assert found == [
        Passage(block, "paragraph"),
        Passage(f"# One\n\n## Two\n\n{block}", "paragraph"),
    ]
    assert cut_passages("* * *\n\n---") == [] and cut_passages("") == []


def test_a_key_changes_with_words_voice_and_settings_alone():
    facts = {"seed": 0, "options": {"steps": 7}}
    assert key("a", facts) == key("a", {"options": {"steps": 7}, "seed": 0})
    others = [("b", facts), ("a", {**facts, "seed": 1}), ("a", {**facts, "options": {"steps": 8}})]
    assert len({key("a", facts), *(key(*other) for other in others)}) == 4


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
    assert cut_passages("a [pause 1s] b")[0].text == "a [pause 1s] b"  # other markup is text
    nested = cut_passages("[voice: a]One. [voice: b]Two.[/voice] Three.[/voice]\n\nFour.")
    assert [(p.text, p.voice) for p in nested] == [
        ("One.", "a"), ("Two.", "b"), ("Three.", "a"), ("Four.", ""),
    ]  # fmt: skip
    for broken in ("a\n[voice: kumo] a", "a\n[/voice]", "a\n[voice]b[/voice]"):
        with pytest.raises(InputError, match="at line 2, column 1"):
            cut_passages(broken)
