"""Days and seconds: what is one, and what is a part, a ratio or a decade that looks alike."""

from __future__ import annotations

import pytest

from nanospeech.text.english.dates import MONTHS
from nanospeech.text.english.number_words import cardinal, ordinal
from tests.text.test_normalize import read_out

SENTENCES = [
    # a day or a part
    ("Meet me Thurs 11/4.", "Meet me Thursday November fourth."),
    ("The rent is due 4/1.", "The rent is due April first."),
    ("Registration starts 6/3.", "Registration starts June third."),
    ("Week of 7/8: closed", "Week of July eighth: closed"),
    ("From 8/1 to 12/3 we travel.", "From August first to December third we travel."),
    ("Sale 11/3-11/9", "Sale November third to November ninth"),
    ("Open 3/4 through 9/10.", "Open March fourth through September tenth."),
    ("See you 10/2!", "See you October second!"),
    ("Tues., 12/5", "Tuesday, December fifth"),
    ("On Friday 2/3 of them left.", "On Friday two thirds of them left."),
    ("On Sunday 1/2 inch of rain fell.", "On Sunday one half inch of rain fell."),
    ("Due to 3/4 of the votes, he won.", "Due to three quarters of the votes, he won."),
    ("It ends 2/3 of the way.", "It ends two thirds of the way."),
    ("It grew to 5/4 of its size.", "It grew to five quarters of its size."),
    ("Play in 7/4 time.", "Play in seven four time."),
    ("8/4 = 2", "eight over four equals two"),
    ("Divide 10/5 now.", "Divide ten over five now."),
    ("The odds were 9/2.", "The odds were nine to two."),
    ("He was 5/2 favorite.", "He was five to two favorite."),
    ("Add 9/4 and 1/4.", "Add nine quarters and one quarter."),
    ("Raise it from 1/4 to 1/2.", "Raise it from one quarter to one half."),
    ("From 1/3 to 2/3 of people.", "From one third to two thirds of people."),
    ("Multiply it by 9/5.", "Multiply it by nine fifths."),
    # minutes and seconds, or a ratio
    ("He was done in 38:20.", "He was done in thirty-eight twenty."),
    ("The video is 58:09 long.", "The video is fifty-eight oh nine long."),
    ("Go to 59:00.", "Go to fifty-nine minutes."),
    ("The 90:00 mark", "The ninety minute mark"),
    ("A ratio of 60:40 is fair.", "A ratio of sixty to forty is fair."),
    ("They beat us 30:28.", "They beat us thirty to twenty-eight."),
    ("The split was 80:20.", "The split was eighty to twenty."),
    ("The odds are 50:1.", "The odds are fifty to one."),
    ("Mix oil and water 25:75.", "Mix oil and water twenty-five to seventy-five."),
    # seconds or decades
    ("Hold for 40s.", "Hold for forty seconds."),
    ("Wait 15s. Then go.", "Wait fifteen seconds. Then go."),
    ("A 20s delay, a 60s break", "A twenty second delay, a sixty second break"),
    ("It polls every 10s.", "It polls every ten seconds."),
    ("In 50s we start.", "In fifty seconds we start."),
    ("delay=300s", "delay equals three hundred seconds"),
    ("Boil 2 min 30 s.", "Boil two minutes thirty seconds."),
    ("He ran 400 m in 45 s.", "He ran four hundred meters in forty-five seconds."),
    ("A 90s kid and an 80s movie", "A nineties kid and an eighties movie"),
    ("Every 90s kid had one.", "Every nineties kid had one."),
    ("For 70s fans only.", "For seventies fans only."),
    ("She is in her 40s.", "She is in her forties."),
    ("Best of the 60s and 70s.", "Best of the sixties and seventies."),
    ("Temperatures in the 90s", "Temperatures in the nineties"),
    ("Highs in 70s.", "Highs in seventies."),
    ("Count in 10s.", "Count in tens."),
    ("Two 45s were sold.", "Two forty-fives were sold."),
    ("4 s's", "four s's"),
    ("At 7/4 he is a good bet.", "At seven quarters he is a good bet."),
    ("Proverbs 31:10-31", "Proverbs thirty-one ten to thirty-one"),
    ("They win sets 7/6.", "They win sets seven sixths."),
    ("The court split 6/5.", "The court split six fifths."),
    ("Set the timer to 90s.", "Set the timer to ninety seconds."),
    ("It takes about 30s.", "It takes about thirty seconds."),
]


@pytest.mark.parametrize(("written", "spoken"), SENTENCES, ids=[s[0][:40] for s in SENTENCES])
def test_a_day_and_a_duration_are_told_by_what_stands_around_them(written, spoken):
    assert read_out(written) == spoken
    assert read_out(spoken) == spoken


def test_a_day_of_any_month_is_a_day_behind_a_weekday_and_due():
    for month, name in enumerate(MONTHS, 1):
        for day in range(1, 29):
            said = f"{name} {ordinal(day)}"
            if (month, day) == (9, 11):
                continue
            assert read_out(f"It is due {month}/{day}.") == f"It is due {said}."
            assert read_out(f"Friday, {month}/{day}.") == f"Friday, {said}."


@pytest.mark.parametrize("noun", ["timeout", "break", "rest"])
def test_any_number_of_seconds_is_counted_before_what_lasts(noun):
    for count in range(2, 200):
        said = f"{cardinal(count)} second {noun}"
        assert read_out(f"a {count}s {noun}") == f"a {said}"
        assert read_out(f"Wait {count}s.") == f"Wait {cardinal(count)} seconds."


def test_decades_stay_decades_behind_an_article_or_a_possessive():
    for decade in range(20, 100, 10):
        for before in ("the", "in the", "since the", "in his", "in their", "the late", "mid"):
            said = read_out(f"{before} {decade}s.")
            assert said.endswith("ies.") and "second" not in said
