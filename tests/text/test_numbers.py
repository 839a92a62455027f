"""Numbers: names, measures, scores and notes, each beside what looks alike."""

from __future__ import annotations

import time

import pytest

from nanospeech.text.normalize import expand
from tests.text.test_normalize import read_out

SENTENCES = [
    # episodes, powers and ids
    ("Watch S03E07 tonight.", "Watch season three, episode seven tonight."),
    ("s1e12", "season one, episode twelve"),
    ("Give it 1e6 steps.", "Give it one times ten to the power of six steps."),
    ("ABC1e5, 7e5f and 3e8a", "ABC one e five, seven e five f and three e eight ay"),
    ("My zip code is 60614-2345.", "My zip code is six zero six one four two three four five."),
    ("Invoice #2024-0013", "Invoice number twenty twenty-four, zero zero one three"),
    ("case no. 21-0032", "case number twenty-one, zero zero three two"),
    ("S/N 00456-789", "S N zero zero four five six, seven eight nine"),
    ("SKU 4410-0098", "SKU four four one zero, zero zero nine eight"),
    ("Order #B-224 shipped.", "Order number B-two hundred twenty-four shipped."),
    ("Model SN-3051X is out.", "Model SN-three thousand fifty-one X is out."),
    ("It is 10x faster.", "It is ten times faster."),
    ("Tickets #12-15", "Tickets number twelve to fifteen"),
    ("The number 42-0 win", "The number forty-two to zero win"),
    ("Order 5-100 units.", "Order five to one hundred units."),
    ("Chapters 01-05.", "Chapters zero one to zero five."),
    ("Open 09-17.", "Open zero nine to seventeen."),
    ("number 555-0199", "number five five five, zero one nine nine"),
    ("#ThrowbackThursday", "hashtag Throwback Thursday"),
    ("Version v3.1", "Version three point one"),
    # races or thousands
    ("The 8k race starts.", "The eight K race starts."),
    ("She ran a 15k today.", "She ran a fifteen K today."),
    ("He runs 10k every day.", "He runs ten K every day."),
    ("Run 5k simulations.", "Run five thousand simulations."),
    ("We ran a 50k simulation.", "We ran a fifty thousand simulation."),
    ("They raised 10k for charity.", "They raised ten thousand for charity."),
    ("5k people came.", "five thousand people came."),
    # kitchens
    ("Add 3 Tbsp. butter.", "Add three tablespoons butter."),
    ("Cook 2-1/2 hrs. at low.", "Cook two and a half hours at low."),
    ("3-1/4 cups flour", "three and one quarter cups flour"),
    ("Approx. 40 people", "Approximately forty people"),
    ("Buy 2 doz. eggs.", "Buy two dozen eggs."),
    ("Add 1/2 c. milk and 2 c. water.", "Add one half cup milk and two cups water."),
    ("Add 1 c. Stir well.", "Add one cup. Stir well."),
    ("Take 25 mcg daily.", "Take twenty-five micrograms daily."),
    ("The 19th c. was long, c. 1850.", "The nineteenth century was long, circa eighteen fifty."),
    ('An 11" tart and 3" of rain', "An eleven-inch tart and three inches of rain"),
    ('The hole is 9".', "The hole is nine inches."),
    ('Cut 3/4" off, or 1 1/2".', "Cut three quarters inch off, or one and a half inches."),
    ("½tsp salt, 1½lb beef", "one half teaspoon salt, one and a half pounds beef"),
    ("He weighs 16st 5lb, not 11st.", "He weighs sixteen stone five pounds, not eleven stone."),
    ("Two MP3s, V8s and PS5s", "Two MP threes, V eights and PS fives"),
    ("A320s and A4s", "ay three twenties and ay fours"),
    ('a 3/4" pipe, a 1/2-mile walk', "a three-quarter-inch pipe, a half-mile walk"),
    ("1/8-inch steps, a 1 1/2-inch nail", "one-eighth-inch steps, a one and a half-inch nail"),
    ("Add a tsp of salt, half a tbsp.", "Add a teaspoon of salt, half a tablespoon."),
    ("It is 1/4in. thick, ½in.", "It is one quarter inch thick, one half inch."),
    ("1/2tsp salt, 1 1/4cups", "one half teaspoon salt, one and one quarter cups"),
    ('Then 5-6" of snow, a 8–10" pan', "Then five to six inches of snow, a eight to ten-inch pan"),
    ('A 1-1/2" x 3/8" bar', "A one and a half inch by three eighths inch bar"),
    ("A 12' x 10' room, 8' by 9 feet", "A twelve foot by ten foot room, eight feet by nine feet"),
    ('He said "I have 9" and left.', 'He said "I have nine" and left.'),
    ('Songs: "99", "22" and "7".', 'Songs: "ninety-nine", "twenty-two" and "seven".'),
    ("pages 4-5 and 5-3", "pages four to five and five to three"),
    # money, scores and parts
    ("Gold is $2,000/oz today.", "Gold is two thousand dollars per ounce today."),
    (
        "It is $0.12/kWh and 2 cents/GB.",
        "It is twelve cents per kilowatt hour and two cents per gigabyte.",
    ),
    (
        "6.5 L/100 km, 52 kcal/100g",
        "six point five liters per one hundred kilometers, fifty-two"
        " kilocalories per one hundred grams",
    ),
    ("It did 60 m.p.h. at 30 m.p.g.", "It did sixty miles per hour at thirty miles per gallon."),
    (
        "£850pcm, £9.50ph and $30k p/a",
        "eight hundred fifty pounds per calendar month, nine pounds and"
        " fifty pence per hour and thirty thousand dollars per year",
    ),
    (
        "It costs 40k-50k, or 1.5M–2M.",
        "It costs forty thousand to fifty thousand, or one point five million to two million.",
    ),
    ("A $30-a-month plan", "A thirty dollar a month plan"),
    ("£2.50p each, 50p more", "two pounds and fifty pence each, fifty pence more"),
    ("Australia 301/7 declared.", "Australia three hundred one for seven declared."),
    ("What is 144/6?", "What is one hundred forty-four over six?"),
    ("130/85 at the doctor", "one hundred thirty over eighty-five at the doctor"),
    ("A 70/30 split", "A seventy thirty split"),
    ("60/40 = 1.5", "sixty over forty equals one point five"),
    ("She got 88/100.", "She got eighty-eight out of one hundred."),
    ("99/100 of a second", "ninety-nine hundredths of a second"),
    ("He scored 9/10.", "He scored nine out of ten."),
    ("It has 10 sq. ft. The room is small.", "It has ten square feet. The room is small."),
    (
        "It is 5 kg +/- 2%, +/-0.5",
        "It is five kilograms plus or minus two percent, plus or minus zero point five",
    ),
    ("Washington, D.C. 20500.", "Washington, D C two zero five zero zero."),
    ("The no. of men. I said no. Of course.", "The number of men. I said no. Of course."),
    ("the 3rd c. BC, the 5th c. A.D.", "the third century BC, the fifth century ay D."),
    (
        "Error 0x80A7 in 640x480",
        "Error zero x eight zero ay seven in six hundred forty by four hundred eighty",
    ),
    # temperatures
    ("It was 75F today.", "It was seventy-five degrees Fahrenheit today."),
    (
        "25C or 77F",
        "twenty-five degrees Celsius or seventy-seven degrees Fahrenheit",
    ),
    ("My seat was 14F.", "My seat was fourteen F."),
    ("He sits in 20C.", "He sits in twenty C."),
    # notes
    ("He fell.[2] Later[13][4] he rose.", "He fell. Later he rose."),
    ("x[1], rows[0], f(rows[1])", "x[one], rows[zero], f(rows[one])"),
    ("See [4] there.", "See [four] there."),
    ("size[1] = 5", "size[one] equals five"),
    (
        "Play talk.m4a, song.opus or film.vtt.",
        "Play talk dot m four ay, song dot opus or film dot vtt.",
    ),
]


@pytest.mark.parametrize(("written", "spoken"), SENTENCES, ids=[s[0][:40] for s in SENTENCES])
def test_a_number_is_read_by_what_stands_around_it(written, spoken):
    assert read_out(written) == spoken
    assert read_out(spoken) == spoken


RUNS = ["9/8 ", "from 9/2 to ", "5s ", "for 5s ", "30:30 ", "[1]", "a[1]", 'a 9" ', '9" ', "S1E1 ",
        "#A-1", "1-0", "01-", "ran 5k ", "12 N ", "12 N Oak ", "plan B. ", "a B. Tom ", "90F or ",
        "1-1/2 ", "1 c. ", "60/40 ", "$1-a-", "Type I ", "= 5s", "5 s "]  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_long_runs_of_numbers_take_time_in_proportion(run):
    def seconds(size: int) -> float:
        text = (run * size)[:size]
        start = time.process_time()
        assert not any(c.isdigit() for c in expand(text))
        return time.process_time() - start

    seconds(100)  # loads what is needed
    assert seconds(10_000) < 16 * max(seconds(1_250), 0.01)
