"""Laws of what the words around a word say of it: commands, compounds and possessives."""

from __future__ import annotations

import pytest

from nanospeech.text.context import JOINED_NOUNS, around, word_list
from nanospeech.text.english.heteronyms import COMMANDS, COMPOUNDS, COMPOUNDS_BEFORE, readings
from nanospeech.text.heteronyms import say_heteronym
from nanospeech.text.phonemes import dictionary

NOUNS_OR_VERBS = sorted(w for w, said in readings(dictionary()).items() if "noun" in said)


def reading(text: str) -> str:
    """The reading of the word that stands between asterisks."""
    before, word, behind = text.split("*")
    found = say_heteronym(before + word + behind, len(before), len(before) + len(word))
    assert found is not None, text
    return found[1]


def test_tables_are_of_words_with_two_sounds():
    forms = {form for word in NOUNS_OR_VERBS for form in (word, word + "s")}
    assert set(NOUNS_OR_VERBS) >= COMMANDS
    assert set(COMPOUNDS) <= COMMANDS and set(COMPOUNDS_BEFORE) <= forms


@pytest.mark.parametrize("word", sorted(COMMANDS))
@pytest.mark.parametrize("lead", ["", "To begin, ", "If you can, ", "First, ", "Tip: ", "Go on; "])
def test_a_clause_begins_with_a_command(word, lead):
    for behind in ("soap and water", "blue cheese", "it", "more than before", "what they had"):
        assert reading(f"{lead}*{word}* {behind}.") == "verb", behind
    assert reading(f"{lead}*{word}* boiled potatoes if there were any.") == "verb"
    assert reading(f"*{word.capitalize()}* one can of beans.") == "verb"


@pytest.mark.parametrize("word", sorted(COMMANDS))
def test_but_not_the_subject_of_a_verb(word):
    for behind in ("of water", "is high", "has grown", "may grow", "dropped sharply", "available"):
        assert reading(f"*{word.capitalize()}* {behind}.") == "noun", behind
    assert reading(f"*{word.capitalize()}* with cars was never common.") == "noun"
    assert reading(f"They had large, *{word}* rooms.") == "noun"
    assert reading(f"In large, *{word}* rooms they sat.") == "noun"
    assert reading(f"*{word.capitalize()}*-free rooms help.") == "noun"


@pytest.mark.parametrize("word", sorted(COMMANDS - JOINED_NOUNS))
def test_commands_follow_commands(word):
    for lead in ("Open the lid", "First, zip the bag", "Peel two apples", "Then slowly stir it"):
        assert reading(f"{lead} and *{word}* soap with care.") == "verb", lead
        assert reading(f"{lead}, *{word}* soap, and wait.") == "verb", lead
        assert reading(f"{lead} and *{word}* of soap.") == "noun", lead
    assert reading(f"The price and *{word}* with tax were high.") == "noun"


@pytest.mark.parametrize("word", sorted(COMPOUNDS))
def test_nor_the_first_part_of_a_compound(word):
    for other in COMPOUNDS[word]:
        assert reading(f"*{word.capitalize()}* {other} were rare.") == "noun", other
        assert reading(f"*{word.capitalize()}* {other}") == "noun", other


@pytest.mark.parametrize("word", sorted(COMPOUNDS_BEFORE))
def test_a_compound_has_no_verb(word):
    for other in COMPOUNDS_BEFORE[word]:
        assert reading(f"{other.capitalize()} *{word}* count.") == "noun", other


@pytest.mark.parametrize("word", [w for w in NOUNS_OR_VERBS if w != "upset"])
def test_what_several_people_own_is_a_noun(word):
    assert reading(f"It was my parents' *{word}* then.") == "noun"
    assert reading(f"The Smiths’ *{word}* was old.") == "noun"
    assert reading(f"The workers' *{word}*.") == "noun"
    assert reading(f"Our parents will *{word}* it.") == "verb"
    assert reading(f"So-called 'experts' *{word}* it.") == "verb"


@pytest.mark.parametrize("text, words", [
    ("My parents' house", ["my", "parents'", "house"]),
    ("the bosses’ cars", ["the", "bosses'", "cars"]),
    ("the parents'", ["the", "parents"]),
    ("Ross's don't", ["ross's", "don't"]),
    ("the 'experts' say", ["the", "experts", "say"]),
    ("‘Don’t say it,’ he", ["don't", "say", "it", "he"]),
    ("5 cars", ["5", "cars"]),
])  # fmt: skip
def test_words_keep_the_apostrophe_of_several_owners(text, words):
    assert word_list(text) == words


def test_a_clause_knows_its_mark():
    text = 'If so, use it; "use" it: use-by dates. He said, "Use it."'
    places = [i for i in range(len(text)) if text[i : i + 3].lower() == "use"]
    found = [around(text, i, i + 3) for i in places]
    assert [a.mark for a in found] == [",", '"', ":", '"']
    assert [a.joined for a in found] == [False, False, True, False]
    assert [a.before for a in found[:1]] == [["if", "so"]]
