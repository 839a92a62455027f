"""Markup and SSML: what they say, in spans; what is wrong, by its name and place."""

import time

import pytest

from nanospeech import InputError
from nanospeech.text import markup
from nanospeech.text.markup import Marked, Style, read_markup, without_markup
from nanospeech.text.ssml import read_ssml


def spans(found: Marked) -> list[tuple]:
    return [(s.written.text.strip(), s.said.text.strip(), s.style, s.after) for s in found.spans]


def test_brackets_say_how_a_text_is_spoken():
    text = (
        "I say [say: tomato | T AH0 M AA1 T OW0], you say tomato.[pause 500ms] [slow]My "
        "[voice: kumo]name[/voice] is [spell: Ab3].[/slow][pause 1.5s][pause 1s] "
        "[fast]Bye [sic] [1].[/fast]"
    )
    found = read_markup(text)
    slow, fast = Style(0.8), Style(1.25)
    assert spans(found) == [
        ("I say tomato, you say tomato.", "I say tomato\u2060, you say tomato.", Style(), 0.5),
        ("My", "My", slow, None),
        ("name", "name", Style(0.8, "kumo"), None),
        ("is Ab3.", "is ay B 3.", slow, 2.5),
        ("Bye [sic] [1].", "Bye [sic] [1].", fast, None),
    ]
    assert found.phonemes == {"tomato\u2060": "T AH0 M AA1 T OW0"}
    for span in found.spans:
        for i, c in enumerate(span.written.text):
            assert text[span.written.starts[i]] == c


def test_phonemes_in_double_brackets_are_a_word_by_itself():
    text = "I am the [[ bˈætmæn ]] not [[bɹˈuːs wˈeɪn]], [[Link]] or \\[[bˈætmæn]]."
    (span,) = read_markup(text).spans
    assert span.written.text == ("I am the bˈætmæn not bɹˈuːs wˈeɪn, [[Link]] or [[bˈætmæn]].")
    assert [text[i] for i in span.written.starts] == list(span.written.text)
    found = read_markup(text).phonemes
    assert found == {"bˈætmæn\u2060": "bˈætmæn", "bɹˈuːs wˈeɪn\u2060": "bɹˈuːs wˈeɪn"}
    with pytest.raises(InputError, match=r"\[\[ʃø\]\] at line 1, column 4: 'ø'"):
        read_markup("Hi [[ʃø]]")
    with pytest.raises(InputError, match=r"'K' .* no IPA sign"):  # nor is it read as ARPAbet
        read_markup("[[Kˈæt]]")
    for lenient in (False, True):
        (word,) = read_markup("[[bæd kæt fæt ɹæt]]", lenient).phonemes
        assert word == "bæd kæt fæt ɹæt\u2060"
    begin = time.process_time()
    assert read_markup("[[ˈ" * 20_000 + "ˈ" * 50_000 + "a").text.endswith("a")
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("word", ["pe", "s", "spell", "Ab"])
def test_the_place_of_a_word_in_brackets_is_its_own(word):
    text = f"go [ spell :  {word} ] [say:{word} | AH0] on"
    found = read_markup(text).spans
    places = [int(place) for span in found for place in span.written.starts]
    size = len(word)
    begins = text.index(":  ") + 3, text.index("say:") + 4
    spelled, said = ([at + i for i in range(size)] for at in begins)
    wanted = [*range(3), *spelled, text.index(" [say"), *said]
    assert places[: len(wanted)] == wanted


def test_the_case_of_a_name_does_not_matter():
    found = read_markup("[Slow]One[/SLOW] [Voice: Kumo]two[/voice]")
    assert spans(found)[0][2:] == (Style(0.8), None)
    assert spans(found)[1][2:] == (Style(1.0, "Kumo"), None)


def test_a_bracket_behind_a_backslash_is_text():
    found = read_markup(r"Write \[slow] or \[pause 1s], [fast]please[/fast]. \[1]")
    assert [s.written.text for s in found.spans] == [
        "Write [slow] or [pause 1s], ", "please. ", r"\[1]"
    ]  # fmt: skip
    assert found.spans[0].written.starts[6] == 7  # the bracket, not the backslash


@pytest.mark.parametrize(
    "text", ["A [pause for effect], a [slow motion] [say what?] [pause] [voice of God].",
             "[slow](see there) [spell check] [/slow down]"])  # fmt: skip
def test_what_only_begins_like_markup_is_text_in_texts_by_others(text):
    with pytest.raises(InputError):
        read_markup(text)
    if "[slow]" not in text:
        assert read_markup(text, lenient=True).text == text
    for wrong in ("[pause 5]", "[say: a | QQ]", "[voice:]a[/voice]", "[slow]a", "a[/fast]"):
        with pytest.raises(InputError):
            read_markup(wrong, lenient=True)
    assert read_markup("[pause] a[pause 1s] b", lenient=True).spans[0].after == 1.0


def test_a_line_is_shown_without_its_markup():
    assert without_markup("# [slow]One[/slow] [pause for effect][pause 1s] ") == (
        "# One [pause for effect]"
    )
    assert without_markup("[slow]One ") == "[slow]One "


def test_names_of_voices_are_checked_and_given_as_they_are_found():
    checked: list[str] = []
    text = "[voice: a]x [slow][voice: b]y[/voice] [/slow][/voice]z"
    found = read_markup(text, check=checked.append).with_voices(str.upper)
    assert [*dict.fromkeys(checked)] == ["a", "b"]
    assert [span.style.voice for span in found.spans] == ["A", "B", None]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Well [slow]very[/slow], late", ["Well ", "very, ", "late"]),
        ('so "[slow]quoted[/slow]" and (see [fast]this[/fast]).',
         ["so ", '"quoted" ', "and (see ", "this)."]),
        ("[slow]a[/slow] “[fast]b[/fast]” (", ["a ", "“b” ("]),
        ("[slow]a[/slow].5 [slow]b[/slow] , c", ["a", ".5 ", "b ", ", c"]),
        ('"[slow]a[/slow]"', ['"a"']),
        ("[slow]ab [/slow], c", ["ab ", ", c"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lenient", [False, True])
def test_marks_stay_with_the_word_that_they_stand_at(text, wanted, lenient):
    found = read_markup(text, lenient)
    assert [s.written.text for s in found.spans] == wanted
    assert "".join(s.written.text for s in found.spans) == found.text
    for span in found.spans:
        assert [text[i] for i in span.written.starts] == list(span.written.text)
        assert span.said.text == span.written.text
        assert list(span.said.starts) == list(range(len(span.said)))
        assert list(span.said.stops) == list(range(1, len(span.said) + 1))


@pytest.mark.parametrize(
    ("inner", "after"),
    [
        ("a<break time='1s'/> <break time='500ms'/>b", 1.5),
        ("a<break time='.5s'/><break time='+1s'/>b", 1.5),  # as W3C's schema has them
        ("a<break time='6s'/><break time='6s'/>b", 10.0),
        ("<p>a<break time='300ms'/></p>b", 0.3),
        ("<p>a</p><break time='300ms'/>b", 0.3),
        ("<p><s>a</s></p>b", "paragraph"),
    ],
)
def test_pauses_at_one_place_add_up_and_go_before_those_of_paragraphs(inner, after):
    first, second = read_ssml(f"<speak>{inner}</speak>").spans
    assert (first.after, second.after) == (after, None)
    found = read_ssml(f"<speak><break time='2s'/>{inner}</speak>")
    assert found.silence == 2 + (0 if after == "paragraph" else after)


@pytest.mark.parametrize(("name", "rates"), [("slow", [0.8, 0.64, 0.512, 0.5, 0.5]),
                                             ("fast", [1.25, 1.5625, 1.953125, 2, 2])])  # fmt: skip
def test_speeds_within_each_other_multiply_to_half_and_to_double(name, rates):
    assert read_markup(f"[{name}]" * 32 + "a" + f"[/{name}]" * 32).text == "a"
    found = read_markup(f"[{name}]a " * 5 + f"[/{name}]" * 5)
    assert [span.style.rate for span in found.spans] == pytest.approx(rates)


@pytest.mark.parametrize(
    "text",
    ["See [1] and [sic], [a pause 5s], [slowly] [ voice.", "[[x]] a[0]", "a [voice-over] [say-so]"],
)
def test_other_brackets_are_text(text):
    assert read_markup(text).text == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Hi.\nOh [pause x] so.", r"\[pause x\] at line 2, column 4: 'x' is no time; write 500ms"),
        ("Hi [pause 20s]", "at most 10 s"),
        ("Hi [spell: !]", "no letter to spell"),
        ("Hi [spell ABC]", r"write \[spell: ABC\]"),
        ("Hi [say: tomato]", r"the word, \| and its sounds"),
        ("Hi [say: tomato | QQ]", "QQ"),
        ("A [say: tom | T AA1 M]s", "line 1, column 23: 's' is one word with what stands before"),
        ("Re[say: do | D UW1]", "at line 1, column 3: 'do' is one word with what stands before it"),
        ("Hi [slow]there", r"\[slow\] at line 1, column 4 is not closed; add \[/slow\]"),
        ("Hi [slow]a[fast]b[/slow]", r"\[/slow\] at line 1, column 18: close \[fast\] first"),
        ("Hi [/voice]", r"there is no \[voice\] before it"),
        ("[slow]a[/fast]", r"close \[slow\] first"),
        ("[slow]a [fast]b", r"\[fast\] at line 1, column 9 is not closed"),
        ("[slow down]a[/slow]", r"write \[slow\]"),
        ("\n[pause x]", "line 2, column 1: 'x' is no time"),
        ("[say: ... | AH0]", "'...' is no word that sounds could be for"),
        ("Hi a[say: do | D UW1]", "'do' is one word with what stands before it"),
        ("[slow] [/slow]", "there is no text"),
        ("[slow]" * 33 + "a" + "[/slow]" * 33, "at most so many"),
    ],
)
def test_wrong_markup_is_named_with_its_place(text, why):
    with pytest.raises(InputError, match=why):
        read_markup(text)


def test_a_long_text_of_markup_is_read_at_once():
    begin = time.process_time()
    found = read_markup("[say: Ann | AE1 N] or [say: ann | AA1 N]. " * 1000)
    assert len(found.phonemes) == 2 and found.phonemes["Ann\u2060"] == "AE1 N"
    assert found.spans[0].said.text.startswith("Ann\u2060 or ann\u2060\u2060. Ann\u2060 or")
    assert read_markup("[" + " " * 50_000 + "a").text.endswith(" a")
    assert time.process_time() - begin < 5


SSML = """<?xml version="1.0"?><speak version="1.1" xmlns="http://www.w3.org/2001/10/synthesis"
xmlns:mstts="https://www.w3.org/2001/mstts">
<p><s>I say <phoneme alphabet="x-arpabet" ph="T AH0 M AA1 T OW0">tomato</phoneme></s>
<s>Nº &amp; é <sub alias="World Wide Web">WWW</sub></s></p>
<prosody rate="80%">My <voice name="kumo">name</voice></prosody><break time="1.5s"/>
<say-as interpret-as="characters">Ab</say-as> the <say-as interpret-as="ordinal">3</say-as>
<break strength="strong"/></speak>"""


def test_ssml_is_the_same_markup():
    found = read_ssml(SSML)
    assert spans(found) == [
        ("I say tomato", "I say tomato\u2060", Style(), "sentence"),
        ("Nº & é WWW", "Nº & é World Wide Web", Style(), "paragraph"),
        ("My", "My", Style(0.8), None),
        ("name", "name", Style(0.8, "kumo"), 1.5),
        ("Ab the 3", "ay B the third", Style(), 0.8),
    ]
    for span in found.spans:
        for i, c in enumerate(span.written.text):
            if not c.isspace() and c != "&":
                assert SSML[span.written.starts[i]] == c
    assert read_ssml('<speak>a <phoneme alphabet="ipa" ph="təˈmeɪtoʊ">t</phoneme></speak>').phonemes


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        ("<emphasis>a</emphasis>", "line 1, column 8: <emphasis> is not known; <speak>, <break>"),
        ('<phoneme ph="T AA1 M">tom</phoneme>s', "'s' is one word with what stands before it"),
        ('<prosody pitch="high">a</prosody>', "<prosody> has no attribute 'pitch'"),
        ('<prosody rate="9">a</prosody>', "rate '9'"),
        ('a<break strength="huge"/>', "strength 'huge'"),
        ('<phoneme alphabet="x-sampa" ph="a">a</phoneme>', "x-arpabet or ipa"),
        ('<say-as interpret-as="magic">a</say-as>', "cannot be said as 'magic'"),
        ("<sub>a</sub>", "needs an alias"),
        ("<voice>a</voice>", "needs a name"),
        ('<sub alias="b"><s>a</s></sub>', "text alone"),
        ("a<break><s>a</s></break>", "<s> is within <break>, which has text alone"),
        ("a<break>a</break>", "<break> has no text"),
        ("<speak>a</speak>", "wrong place"),
        ("<p>a", "not well-formed SSML at line 1"),
        ("&bomb;", "not well-formed|entity"),
        ("<p>" * 33 + "a" + "</p>" * 33, "at most so many"),
        ('<say-as interpret-as="date"> </say-as>', "<say-as> has no text"),
    ],
)
def test_wrong_ssml_is_named_with_its_place(inner, why):
    assert read_ssml(f"<speak>{'<p>' * 32}a{'</p>' * 32}</speak>").text == "a"
    with pytest.raises(InputError, match=why):
        read_ssml(f"<speak>{inner}</speak>")


@pytest.mark.parametrize(
    ("inner", "said", "rate"),
    [
        ('<prosody rate="+20%">a</prosody>', "a", 1.2),
        ('<prosody rate="-50%">a</prosody>', "a", 0.5),
        ('<prosody rate="200%">a</prosody>', "a", 2.0),
        ('<prosody rate="0.75">a</prosody>', "a", 0.75),
        ('<prosody rate="x-slow">a</prosody>', "a", 0.65),
        ('<say-as interpret-as="date">1/2/2020</say-as>', "1/2/2020", 1.0),
        ('<say-as interpret-as="time" format="hms12">9:30</say-as>', "9:30", 1.0),
        ('<say-as interpret-as="ordinal">23rd</say-as>', "twenty-third", 1.0),
        ('<say-as interpret-as="date" format="dmy">1/2/2020</say-as>', "2020-02-01", 1.0),
        ('<say-as interpret-as="date" format="mdy">1.2.2020</say-as>', "2020-01-02", 1.0),
        ('<say-as interpret-as="date" format="ymd">2020-12-31</say-as>', "2020-12-31", 1.0),
    ],
)
def test_rates_may_be_changes_and_dates_have_an_order(inner, said, rate):
    (span,) = read_ssml(f"<speak>{inner}</speak>").spans
    assert (span.said.text, span.style.rate) == (said, pytest.approx(rate))


def test_words_for_rates_and_strengths_are_in_order():
    def read(element: str) -> Marked:
        return read_ssml(f"<speak>a {element}</speak>")

    names = ("x-slow", "slow", "medium", "fast", "x-fast")
    rates = [read(f"<prosody rate='{name}'>b</prosody>").spans[1].style.rate for name in names]
    assert rates == sorted({*rates}) and rates[1:4] == [0.8, 1, 1.25]  # as [slow] and [fast] are
    assert read("<prosody rate='default'>b</prosody>").spans[-1].style.rate == 1
    names = ("none", "x-weak", "weak", "medium", "strong", "x-strong")
    pauses = [read(f"<break strength='{name}'/>").silence for name in names]
    assert pauses == sorted({*pauses}) and pauses[0] == 0
    assert read("<break/>").silence == pauses[3]


@pytest.mark.parametrize(
    "inner",
    [
        '<say-as interpret-as="date" format="dmy">31/31/2020</say-as>',
        '<say-as interpret-as="date" format="dmy">1/2/20</say-as>',
        '<say-as interpret-as="date" format="dmy">May</say-as>',
        '<say-as interpret-as="date" format="md">1/2/2020</say-as>',
        '<say-as interpret-as="ordinal">x3rd</say-as>',
        '<prosody rate="-60%">a</prosody>',
        '<prosody rate="+110%">a</prosody>',
        '<prosody rate="quick">a</prosody>',
        '<prosody rate="+0.2">a</prosody>',
        "\ud800",
    ],
)
def test_a_date_or_a_rate_that_cannot_be_meant_is_refused(inner):
    with pytest.raises(InputError):
        read_ssml(f"<speak>{inner}</speak>")


def test_a_paragraph_or_a_sentence_begins_where_its_element_does():
    found = read_ssml("<speak>One<p>two</p>three<s>four</s>five<break time='10s'/></speak>")
    assert [(s.written.text, s.after) for s in found.spans] == [
        ("One", None), ("two", "paragraph"), ("three", None), ("four", "sentence"), ("five", 10.0)
    ]  # fmt: skip


def test_all_of_ssml_is_within_speak():
    with pytest.raises(InputError, match="<p> stands in the wrong place: <speak> is around all"):
        read_ssml("<p>Hi.</p>")
    with pytest.raises(InputError, match="not well-formed SSML at line 1, column 11"):
        read_ssml("<speak>Hi.")  # which was cut off


def test_the_place_of_a_word_with_an_entity_is_that_of_its_first_letter():
    text = '<speak>Hi <sub alias="research">R&amp;D</sub></speak>'
    (span,) = read_ssml(text).spans
    assert span.written.text == "Hi R&D" and span.written.starts[3] == text.index("R&")


def test_lines_of_ssml_are_no_paragraphs():
    (span,) = read_ssml("<speak>\n  One,\n\n  two.\n</speak>").spans
    assert "\n" not in span.said.text and span.written.text.split() == ["One,", "two."]


def test_entities_and_document_types_are_refused():
    bomb = '<!DOCTYPE speak [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><speak>&b;</speak>'
    for text in (bomb, '<!DOCTYPE speak SYSTEM "file:///etc/passwd"><speak>a</speak>'):
        with pytest.raises(InputError, match="document type"):
            read_ssml(text)
    with pytest.raises(InputError, match="bytes; at most"):
        read_ssml("<speak>" + "a" * (5 << 20) + "</speak>")


@pytest.mark.parametrize(
    "text",
    ["[pause 1s] [slow][pause 200ms]Hi.[/slow] Bye.", "[pause 1.2s]... Hi. [slow]Bye.[/slow]"],
)
def test_a_pause_may_come_before_all_text(text):
    first, last = read_markup(text).spans
    assert first.before == pytest.approx(1.2) and last.before == 0
    assert first.written.text + last.written.text in ("Hi. Bye.", "... Hi. Bye.")
    assert read_ssml("<speak><break time='300ms'/><p>Hi.</p></speak>").spans[0].before == 0.3
    for empty in ("[pause 1s]", "[pause 1s] ..."):
        with pytest.raises(InputError, match="no text to speak"):
            read_markup(empty)


def test_pauses_among_marks_before_all_text_cost_no_more_than_others():
    begin = time.process_time()
    found = read_markup("- [pause 1s]" * 2000 + "Hello.")
    assert time.process_time() - begin < 5
    (span,) = found.spans
    assert span.written.text == "- " * 2000 + "Hello." and span.before == markup.LONGEST_PAUSE


def test_marks_alone_belong_to_the_span_before_them():
    found = read_markup("— [slow]Oh[/slow]![pause 1s] ... [fast]a[/fast]")
    assert [(s.written.text, s.said.text, s.after) for s in found.spans] == [
        ("— Oh! ... ", "— Oh! ... ", 1.0), ("a", "a", None),
    ]  # fmt: skip
    assert found.spans[0].said.stops[-1] == len(found.spans[0].written)
