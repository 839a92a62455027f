"""Letters: single ones, firms, numerals and sides of streets, within a sentence or at its end."""

from __future__ import annotations

import pytest

from nanospeech.text.sentences import split_sentences
from tests.text.test_normalize import read_out

STOPPED = [
    "We chose plan D. Tom did not.",
    "Take vitamin K. Oil helps.",
    "I got a C. Ann failed.",
    "The answer is B. Explain it.",
    "See figure E. Figure F is below.",
    "Walk from X to Y. Draw a line.",
    "The blood type is O. Doctors know.",
    "He moved to the U.K. Afterwards he sang.",
    "She works for Ford Motor Co. Perhaps he does.",
    "They left Washington, D.C. Once home, they slept.",
    "Turn on 7th Ave. Finally, stop.",
    "Meet Mr. B. Nobody else came.",
    "We live on Elm St. Everyone does.",
    "King George V. Then came another.",
]
WITHIN = [
    "J. R. R. Tolkien wrote it.",
    "Philip K. Dick and Susan B. Anthony met.",
    "She got a D. H. Lawrence novel.",
    "He met a J. Smith there.",
    "The author is B. Traven.",
    "The plan by J. Smith failed.",
    "Mary and J. Smith left.",
    "George F. Will wrote a column.",
    "The U.S. Senate and U.S. Steel voted.",
    "Washington, D.C. Mayor Bowser spoke.",
    "Apple Inc. Chief Tim Cook spoke.",
    "Warner Bros. Discovery fell.",
    "Martin Luther King Jr. Day is in January.",
    "Robert V. Roth sang.",
    "He lives in St. Paul now.",
]


@pytest.mark.parametrize("text", STOPPED)
def test_a_letter_or_a_firm_that_ends_a_sentence_keeps_its_stop(text):
    said = read_out(text)
    assert said.count(".") == 2 and said.endswith(".")
    assert said.index(". ") < len(said) - 2


@pytest.mark.parametrize("text", WITHIN)
def test_a_letter_within_a_name_ends_no_sentence(text):
    said = read_out(text)
    assert said.count(".") == 1 and len(split_sentences(said)) == 1


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("45 W 34th Street", "forty-five West thirty-fourth Street"),
        ("120 N. Oak St. is ours.", "one hundred twenty North Oak Street is ours."),
        ("900 S. Lake Shore Drive", "nine hundred South Lake Shore Drive"),
        ("He lives on E. 86th Street.", "He lives on East eighty-sixth Street."),
        ("It draws 45 W. It is on.", "It draws forty-five watts. It is on."),
        ("A 60 W bulb", "A sixty watt bulb"),
        ("A 100 W Philips lamp", "A one hundred watt Philips lamp"),
        ("5 N of force", "five N of force"),
    ],
)
def test_the_side_of_a_street_is_no_unit(written, spoken):
    assert read_out(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Type I errors", "Type one errors"),
        ("a Phase I study", "a Phase one study"),
        ("Level I trauma center", "Level one trauma center"),
        ("Emperor Otto V. He died.", "Emperor Otto the fifth. He died."),
        ("Part V. Nobody came.", "Part five. Nobody came."),
        ("CHAPTER I. Down the Rabbit-Hole", "CHAPTER one. Down the Rabbit-Hole"),
        ("Chapter V. 'Advice'", "Chapter five. 'Advice'"),
        ("In this chapter I. Newton speaks.", "In this chapter I. Newton speaks."),
        ("the Class I took", "the Class I took"),
        ("the Type I like", "the Type I like"),
        ("the Level I reached", "the Level I reached"),
        ("the type I mean", "the type I mean"),
        ("George V. Smith", "George V Smith"),
    ],
)
def test_a_numeral_is_no_word_and_no_initial(written, spoken):
    assert read_out(written) == spoken
