"""Formatting: what people paste of Markdown and HTML is read as its reader sees it."""

from __future__ import annotations

import time

import pytest

from nanospeech.text.formatting import unformatted
from nanospeech.text.sentences import legible, prepare, split_sentences
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech.text.traced import Traced
from nanospeech.text.written import written_words

PHONEMES = Tokenizer("phonemes", phoneme_vocab())


@pytest.mark.parametrize("written, read", [
    ("The [website]() is up.", "The website is up."),
    ("See [the manual](https://example.com/a_(b)), or [here](#top).", "See the manual, or here."),
    ('![A cat](cat.png "Tom") sleeps.', "A cat sleeps."),
    ("See [the\n  manual](https://example.com), [![or](a.png)](https://example.com) here.",
     "See the manual, or here."),
    ("Write to <me@example.org> or <https://example.org>.",
     "Write to me at example dot org or example dot org."),
    ("It is so.[^1] Really [1], f[0](x).", "It is so. Really [one], f[zero](x)."),
    ("> He said\n> so.", "He said so."),
    (">> ANN: Hello. >> Hi! [Laughs] >> So", "ANN: Hello. Hi! [Laughs] So"),
    ("1\n00:00:01,000 --> 00:00:04,000\nHe came\n\n2\n00:00:04,000 --> 00:00:08,500\nat 5.",
     "He came at five."),
    ("WEBVTT\n\n00:01.000 --> 00:04.000\nOne.\n\n00:05.000 --> 00:08.000\nTwo.", "One. Two."),
    ("Run:\n```sh\nmake\n```\nDone.", "Run:\n\nmake\n\nDone."),
    ("| Name | Age |\n|---|---:|\n| Ann | 5 |", "Name, Age. Ann, five."),
    ("You need\n- eggs\n- flour,\n* [ ] milk\n  and salt", "You need: eggs. flour, milk and salt"),
    ("- Sales: 5 %\n- Cost: 3 €\n- **Rest**: 2 m²\n- None",
     "Sales: five percent. Cost: three euros. Rest: two square meters. None"),
    ("1. Open it\n2. Look.\n3) Close it", "one. Open it. two. Look. three. Close it"),
    ("Please <b>read</b> <a href='x'>this</a>,<br/>and <em>that</em>.",
     "Please read this, and that."),
    ("<p>One.</p><!-- no --><p>Two.</p>", "One.\n\nTwo."),
    ("AT&amp;T&#39;s caf&eacute;&nbsp;&lt;b&gt;&hellip;",
     "AT and T's café less than b greater than..."),
    ("Year\tSales\n2019\t1,234\t+5%\n2020\t-20%",
     "Year, Sales. twenty nineteen, one thousand two hundred thirty-four, plus five percent."
     " twenty twenty, minus twenty percent"),
    ("[14:02] <anna> hey there\n[14:03] <bob> so\n10:31 AM Sue: yes",
     "[fourteen oh two] anna: hey there. [fourteen oh three] bob: so. ten thirty-one ay em Sue:"
     " yes"),
    ("https://one.com/b\nwww.example.com\nftp://c.com",
     "one dot com slash b. W W W dot example dot com. c dot com"),
    ("x**2 and **3** men", "x to the power of two and three men"),
    ("1.\tOpen it\n2.\tClose it", "one. Open it. two. Close it"),
])  # fmt: skip
def test_signs_of_formatting_are_not_read(written, read):
    assert prepare(written, PHONEMES) == read
    assert unformatted(Traced.of(read)).text == read


@pytest.mark.parametrize("text", [
    "He waited\n- and waited.",
    "He said at\n10:30 that so it was",
    "A\ttab, and\nhttps://example.org alone",
    "I <3 you, if x <y> z",
    "x < y > z, a<b and b>c, AT&T; &such; &notit; &#0; &#xD800;",
    "It is\n> 5 or >= 5.",
    "x >> 2, a >> b, cin >> A, A --> B",
    "[pause] (see below) [1] [sic](!) <laugh> <unk>",
    "Born in\n1984. Died in\n2019. Then",
])  # fmt: skip
def test_what_only_looks_like_formatting_stays(text):
    assert unformatted(Traced.of(text)).text == text


def test_a_page_is_read_without_what_a_browser_does_not_show():
    page = """<!DOCTYPE html><html lang="en"><HEAD><meta charset="utf-8"><title>T</title>
    <style>p > a { color: red; }</style></HEAD><body><p>One.</p><script async>
    if (a < b && c > 2) document.write("<p>No.</p>");</script >
    <svg viewBox="0 0 1 1"><path d="M0 0"/></svg><p>Two.</p></body></html>"""
    assert prepare(page, PHONEMES) == "One.\n\nTwo."
    assert prepare("Between <head> and </head> it is.", PHONEMES) == "Between\n\n\nand\n\nit is."
    began = time.perf_counter()
    unformatted(Traced.of("<html>" + "<script>" * 20_000 + "</style>" * 20_000))
    assert time.perf_counter() - began < 5


def test_an_item_is_no_sentence_of_its_number():
    text = "1. Bread\n2. Milk. Much of it.\n 3. Eggs"
    assert split_sentences(text) == ["1. Bread\n2. Milk. ", "Much of it.\n ", "3. Eggs"]
    assert split_sentences("It was in\n1984. Then") == ["It was in\n1984. ", "Then"]


def test_words_of_formatted_text_are_found_as_written():
    text = "- **Eggs** now\n- [Rye flour](https://example.com)\n- <b>Salt</b> &amp; sugar"
    said = legible(Traced.of(text), PHONEMES)
    words = written_words(text, said, lambda word: prepare(word, PHONEMES))
    assert [(w.text, said.text[w.start : w.stop].strip()) for w in words] == [
        ("-", ""),
        ("**Eggs**", "Eggs"),
        ("now", "now."),
        ("-", ""),
        ("[Rye", "Rye"),
        ("flour](https://example.com)", "flour."),
        ("-", ""),
        ("<b>Salt</b>", "Salt"),
        ("&amp;", "and"),
        ("sugar", "sugar"),
    ]


@pytest.mark.parametrize("run", ["[", "[a](", "<a ", "<!--", "&a", "- a\n", "1. a\n", "> ", "|"])
def test_long_runs_of_signs_are_not_slow(run):
    text = (run * 20_000)[:60_000]
    assert isinstance(unformatted(Traced.of(text)).text, str)
