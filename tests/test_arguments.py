"""Arguments: numbers of Python and NumPy are taken, and what is of another type is told."""

import io
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from nanospeech import InputError, OutputOptions, SampleOptions, load_engine
from nanospeech.arguments import check_kind, number, whole
from nanospeech.config import BatchLimits


@pytest.mark.parametrize(
    "value", [2, 2.0, np.float32(2), np.int8(2), np.array(2), Fraction(4, 2), Decimal(2)]
)
def test_a_number_is_one_of_any_kind(value):
    found = number("it", value)
    assert found == 2 and type(found) is float


@pytest.mark.parametrize("value", ["2", b"2", None, [2], 2j, Path("2"), io.BytesIO(b"2"), {}])
def test_nothing_else_is_a_number(value):
    for read in (number, whole):
        with pytest.raises(InputError, match=r"it should be a .*number, got "):
            read("it", value)


def test_whole_numbers_are_of_python():
    for value in (7, np.uint8(7), np.int64(7), np.array(7)):
        found = whole("it", value)
        assert found == 7 and type(found) is int
    for value in (7.0, np.float32(7), Fraction(7)):
        with pytest.raises(InputError, match="whole number"):
            whole("it", value)


def test_a_message_says_what_was_got_and_what_is_wanted_however_long_it_is():
    with pytest.raises(InputError) as told:
        check_kind("it", list(range(10_000)), str, "a name")
    assert (
        str(told.value).startswith("it should be a name, got [0, 1") and len(str(told.value)) < 99
    )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: OutputOptions(pause_clause="off"), r"pause_clause .* or off \(None in Python\)"),
        (lambda: OutputOptions(loudness="-18"), "loudness should be a number or off"),
        (lambda: OutputOptions(lexicon={"a": 5}), "the lexicon's 'a' should be .* got 5"),
        (lambda: OutputOptions(lexicon={5: "a"}), "a word of the lexicon should be .* got 5"),
        (lambda: OutputOptions(lexicon=5), "lexicon should be a file"),
        (lambda: OutputOptions(language=5), "language should be a code"),
        (lambda: BatchLimits(1.5), "items of a batch should be a whole number"),
        (lambda: BatchLimits(frames="9"), "frames of a batch should be a whole number"),
        (lambda: SampleOptions(steps="4"), "steps should be a number"),
        (lambda: SampleOptions(cfg_strength="2"), "cfg_strength should be a number"),
        (lambda: SampleOptions(cfg_from=None), "cfg_from should be a number"),
        (lambda: load_engine(123), "folder_or_repo should be a release folder, .* got 123"),
        (lambda: load_engine(b"x"), "folder_or_repo should be a release folder"),
        (lambda: load_engine(quantize="4"), "quantize should be a whole number"),
        (lambda: load_engine(quantize=4.0), "quantize should be a whole number"),
        (lambda: load_engine(device=0), "device should be a name"),
    ],
)
def test_options_of_another_type_are_refused_where_they_are_made(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_numbers_of_numpy_are_numbers():
    limits = BatchLimits(np.int8(100), np.int16(30_000))
    assert limits == BatchLimits(100, 30_000) and type(limits.items) is int
    SampleOptions(steps=np.int64(4), cfg_strength=np.float32(2), sway_sampling_coef=None)
    found = OutputOptions(loudness=np.float32(-20), pause_clause=np.float64(0.1))
    assert found.pause("clause") == 0.1
