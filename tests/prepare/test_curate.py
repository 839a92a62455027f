"""Curating: which clips are trained on and which held out; nothing is heard twice or lost."""

from __future__ import annotations

import csv
import json
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanospeech.audio import wave as audio
from nanospeech.audio.recording import RUMBLES, rumble
from nanospeech.corpus.held_out import is_held_out
from nanospeech.corpus.layouts import Skip, find
from nanospeech.corpus.mp3 import decode
from nanospeech.errors import DataError, InputError
from nanospeech.evaluate.prompts import degraded
from nanospeech.prepare.choose_prompts import by_speaker, choose, depth, measure
from nanospeech.prepare.choose_prompts import main as prompts
from nanospeech.prepare.curate import curate, main
from nanospeech.prepare.curate_clips import (
    Clip,
    CurateOptions,
    check_words,
    denoise,
    even,
    examine,
)
from nanospeech.prepare.curate_copies import make_copies
from nanospeech.prepare.curate_report import Speakers
from nanospeech.prepare.levels import levels
from nanospeech.prepare.portions import members_of
from nanospeech.prepare.recogniser import Heard, loaded, misheard

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHARD = FIXTURES / "speech-000000.tar"
TEXTS = {s.key: s.text for s in find([SHARD])[0]}


class Ear:
    """A recogniser that knows the fixture's clips by their lengths, and counts."""

    def __init__(self, said: dict[str, str]):
        pytest.importorskip("whisper_normalizer")
        lengths = {s.key: len(audio.read(s.audio.read())) for s in find([SHARD])[0]}
        self.said = {lengths[key]: text for key, text in said.items()}
        self.calls = 0
        self.languages: list[str] = []

    def __call__(self, wave: np.ndarray, language: str) -> str:
        self.calls += 1
        self.languages.append(language)
        return self.said[len(wave)]


def clips(folder: Path, side: str) -> dict[str, dict]:
    """JSON by key of one side."""
    if not any((folder / side).iterdir()):
        return {}
    return {s.key: {"text": s.text, **s.extra} for s in find([folder / side])[0]}


def split(out: Path, **options) -> tuple[dict, dict]:
    summary, _ = curate(find([SHARD])[0], out, CurateOptions(**options))
    return summary, {side: set(clips(out, side)) for side in ("train", "heldout")}


def test_every_clip_is_on_the_side_of_its_key(tmp_path):
    _, sides = split(tmp_path, held_out=2)
    want = {key for key in TEXTS if zlib.crc32(key.encode()) % 2 == 0}
    assert want and sides == {"train": TEXTS.keys() - want, "heldout": want}
    assert not any(is_held_out(key, 0) for key in TEXTS)


def test_a_set_that_is_read_is_not_replaced(tmp_path):
    """Its held-out clips are not among those of training, and would be lost."""
    _, sides = split(tmp_path, held_out=2)
    samples = find([tmp_path / "train"])[0]
    with pytest.raises(InputError, match="is read and would be replaced"):
        curate(samples, tmp_path, CurateOptions(held_out=2), overwrite=True)
    assert {side: set(clips(tmp_path, side)) for side in sides} == sides


@pytest.mark.parametrize("where", ["train/anna", "heldout"])
def test_a_data_set_is_not_replaced_by_what_is_made_of_it(tmp_path, where):
    """The recordings of one that has a folder train were deleted, if it was named as --out."""
    (place := tmp_path / where).mkdir(parents=True)
    shutil.copy(FIXTURES / "ljspeech/wavs/LJ001-0008.wav", place / "a.wav")
    (place / "a.txt").write_text("has never been surpassed", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    for data, told in ((tmp_path, "is read and would be"), (SHARD, "is no shard and would be")):
        with pytest.raises(InputError, match=told):
            curate(find([data])[0], tmp_path, overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_copies_at_another_speed_are_trained_on_only_and_make_no_voices(tmp_path):
    plain, _ = split(tmp_path / "plain", held_out=2)
    summary, sides = split(tmp_path / "varied", held_out=2, vary=(0.1,))
    assert summary == plain | {"vary": [0.1]}  # hours and clips are those of recordings
    here = find([tmp_path / "varied" / "train"])[0]
    shards = (tmp_path / "varied" / "train").glob("*.tar")
    told = {k: json.loads(m["json"])["duration"] for s in shards for k, m in members_of(s)}
    copies = {s.key: s for s in here if "pace" in s.extra}
    originals = {s.key: s for s in here if s.key not in copies}
    ((who, counts),) = plain["speakers"].items()
    assert len(copies) == len(originals) == counts["train_clips"]
    for key, copy in copies.items():
        kind = key.rpartition("-")[2]
        first, pace = originals[key.removesuffix(f"-{kind}")], {"slow": 0.9, "fast": 1.1}[kind]
        assert (copy.speaker, copy.text) == (f"{who}-{kind}", first.text)
        assert copy.extra["pace"] == pytest.approx(pace)
        slow, wave = audio.read(copy.audio.read()), audio.read(first.audio.read())
        assert len(slow) == pytest.approx(len(wave) / pace, abs=2)
        assert told[key] == pytest.approx(len(slow) / 24_000, abs=0.01)
        # the pitch goes with it: the strongest tone is where it was times the pace
        assert centre(slow) == pytest.approx(pace * centre(wave), rel=0.04)
    assert len(sides["heldout"]) == counts["heldout_clips"]
    assert by_speaker([tmp_path / "varied" / "train"], "voice").keys() == {who}


def test_several_shares_make_a_copy_and_a_speaker_each(tmp_path):
    split(tmp_path, held_out=0, vary=(0.08, 0.16))
    here = find([tmp_path / "train"])[0]
    paces = [round(s.extra["pace"], 2) for s in here if "pace" in s.extra]
    assert len(here) == 3 * len(TEXTS) and len(paces) == 2 * len(TEXTS)
    assert {abs(round(p - 1, 2)) for p in paces} == {0.08, 0.16}
    for s in here:
        if "pace" in s.extra:
            kind = "fast" if s.extra["pace"] > 1 else "slow"
            assert str(s.speaker).endswith(f"-{kind}{round(abs(s.extra['pace'] - 1) * 100)}")


def test_copies_at_half_percents_are_read_as_any_others(tmp_path):
    split(tmp_path, held_out=0, vary=(0.125, 0.16))
    here, skips = find([tmp_path / "train"])
    assert len(here) == 3 * len(TEXTS) and not skips
    assert {str(s.speaker).rpartition("-")[2][4:] for s in here} >= {"12_5", "16"}


def test_which_copies_are_slower_is_a_matter_of_keys_alone():
    """A set that is made again has the copies of before."""
    wave = np.sin(np.arange(2_400) * 0.1).astype(np.float32) / 2
    for key in ("a", "b", "c", "d", "kathleen_0001", "kathleen_0002"):
        kinds = ["fast" if zlib.crc32(text.encode()) >> 16 & 1 else "slow" for text in (
            key, f"{key} 0.08", f"{key} 0.125"
        )]  # fmt: skip
        assert [copy.name for copy in make_copies(key, wave, (0.1,))] == kinds[:1]
        several = [copy.name for copy in make_copies(key, wave, (0.08, 0.125))]
        assert several == [f"{kinds[1]}8", f"{kinds[2]}12_5"]


def test_a_speaker_is_full_with_as_many_hours_to_train_on():
    (sample, *_), people = find([SHARD])[0], Speakers(1.0)
    people.keep(sample, 7200.0, "heldout")
    people.keep(sample, 3599.0, "train")
    assert not people.full(sample)
    people.keep(sample, 1.0, "train")
    assert people.full(sample) and not people.full(replace(sample, speaker="anna"))
    (about,) = people.summary().values()
    assert (about["train_hours"], about["heldout_hours"]) == (1.0, 2.0)
    assert (about["train_clips"], about["heldout_clips"]) == (2, 1)
    assert about["source"] == {"kathleen": 3.0}


def test_options_may_be_as_much_as_they_may():
    CurateOptions(vary=(0.5,), denoise=1.0, held_out=0, max_wer=0.0, level=0.49)
    wrongs: list[dict[str, Any]] = [
        {"vary": (0.51,)},
        {"vary": (0.0,)},
        {"denoise": 1.01},
        {"denoise": 0.0},
        {"rumble": 0.1},
        {"max_hours": 0.0},
        {"max_wer": -0.01},
        {"level": 0.5},
        {"level": 0.0},
    ]
    for wrong in wrongs:
        with pytest.raises(InputError, match=f"--{next(iter(wrong)).replace('_', '-')} is"):
            CurateOptions(**wrong)


def centre(wave: np.ndarray) -> float:
    """The median frequency of a wave, in Hz."""
    power = np.square(np.abs(np.fft.rfft(wave)))
    return float(np.searchsorted(power.cumsum(), power.sum() / 2) / len(wave) * 24_000)


def test_a_steady_hiss_is_taken_out_and_speech_is_left(tmp_path):
    pytest.importorskip("noisereduce", reason="it is of the extra denoise")
    wave = audio.read(find([SHARD])[0][0].audio.read())
    wave = np.concatenate([wave, np.zeros(12_000, np.float32)])
    hiss = 0.01 * np.random.default_rng(0).standard_normal(len(wave)).astype(np.float32)
    less = denoise(wave + hiss, 0.7)
    assert less.dtype == np.float32 and less.shape == wave.shape
    quiet = slice(-10_000, -2_000)
    assert audio.rms(less[quiet]) < 0.5 * audio.rms(hiss[quiet])
    assert np.corrcoef(less, wave)[0, 1] > 0.95
    split(tmp_path, held_out=0, denoise=0.7)
    ours = audio.read(find([tmp_path / "train"])[0][0].audio.read())
    assert len(ours) in {len(audio.read(s.audio.read())) for s in find([SHARD])[0]}
    with pytest.raises(InputError, match="--denoise"):
        CurateOptions(denoise=2)


def test_audio_that_is_an_mp3_already_is_not_coded_again(tmp_path):
    split(tmp_path, held_out=0)
    was = {s.key: s.audio.read() for s in find([SHARD])[0]}
    assert {s.key: s.audio.read() for s in find([tmp_path / "train"])[0]} == was


def test_rumble_is_filtered_out_and_what_was_heard_is_kept(tmp_path):
    (tmp_path / "in").mkdir()
    for s in find([SHARD])[0]:
        poor = degraded(audio.read(s.audio.read()), "rumble")
        audio.write(tmp_path / "in" / f"{s.key}.wav", poor)
        (tmp_path / "in" / f"{s.key}.txt").write_text(s.text)
    options = CurateOptions(held_out=0)
    curate(find([tmp_path / "in"])[0], tmp_path / "out", options)
    found = find([tmp_path / "out" / "train"])[0]
    assert found and all(rumble(audio.read(s.audio.read())) < RUMBLES for s in found)
    sample = find([tmp_path / "in"])[0][0]
    known = {zlib.crc32(sample.audio.read()): "as it was heard"}
    assert examine((sample, known), options).heard == "as it was heard"
    clip = examine((sample, known), CurateOptions(rumble=0))
    assert rumble(audio.read(clip.data)) > RUMBLES
    hum = 0.1 * np.sin(2 * np.pi * 30 * np.arange(48_000) / 24_000)
    audio.write(tmp_path / "in" / f"{sample.key}.wav", hum.astype(np.float32))
    assert examine((sample, {}), options) == Skip(sample.name, "silent", "nothing but rumble")


def test_what_is_misheard_is_dropped_and_what_was_heard_is_kept(tmp_path):
    bad, *good = TEXTS
    ear = Ear(TEXTS | {bad: "something else entirely was said"})
    samples, options = find([SHARD])[0], CurateOptions(held_out=0)
    _, skips = curate(samples, tmp_path, options, load=lambda: ear, recogniser="ear")
    assert [s.reason for s in skips] == ["misheard"] and bad in skips[0].name
    kept = clips(tmp_path, "train")
    assert kept.keys() == set(good) and all(meta["wer"] == 0 for meta in kept.values())
    assert ear.calls == 4
    # with other limits nobody has to listen again; another recogniser has to
    looser = CurateOptions(held_out=0, max_wer=5)
    curate(samples, tmp_path, looser, load=lambda: ear, recogniser="ear", overwrite=True)
    assert clips(tmp_path, "train").keys() == TEXTS.keys() and ear.calls == 4
    curate(samples, tmp_path, looser, load=lambda: ear, recogniser="other", overwrite=True)
    assert ear.calls == 8


def test_the_recogniser_is_told_the_language_that_is_spoken(tmp_path):
    """It listened for English in whatever was spoken, and nearly all of it was dropped."""
    [own, wrong, *others] = samples = find([SHARD])[0]
    samples[0] = replace(own, extra={"language": "sv-SE"})
    samples[1] = replace(wrong, extra={"language": "Swedish?"})
    ear, options = Ear(TEXTS), CurateOptions(held_out=0, max_wer=0, language="it")
    _, skips = curate(samples, tmp_path, options, load=lambda: ear, recogniser="ear")
    assert [(s.name, s.reason) for s in skips] == [(wrong.name, "invalid language")]
    assert sorted(ear.languages) == ["it"] * len(others) + ["sv"]
    kept = clips(tmp_path, "train")
    assert {key: meta["language"] for key, meta in kept.items()} == {
        own.key: "sv-SE",
        **{s.key: "it" for s in others},
    }
    # what was heard as Italian is no English transcript
    curate(samples, tmp_path, options, load=lambda: ear, recogniser="ear", overwrite=True)
    assert ear.calls == 3
    english = replace(options, language=None)
    curate(samples, tmp_path, english, load=lambda: ear, recogniser="ear", overwrite=True)
    assert sorted(ear.languages[3:]) == ["en"] * len(others)


def test_marks_count_but_in_english():
    pytest.importorskip("whisper_normalizer")
    assert misheard("La papà è già là oggi", "La papa e gia la oggi") == 0
    assert misheard("La papà è già là oggi", "La papa e gia la oggi", "it") > 0.5
    clip = Clip(replace(find([SHARD])[0][0], text="Papà"), b"", 1.0, "Papa", True)
    assert check_words(clip, CurateOptions(language="it")) == {"wer": 0.25}
    assert isinstance(check_words(clip, CurateOptions(language="it", max_wer=0.2)), Skip)
    seven = replace(clip, sample=replace(clip.sample, text="a b c d e f g"), heard="a b c d e f")
    assert check_words(seven, CurateOptions()) == {"wer": 0.1429}
    assert check_words(clip, CurateOptions(language="it", max_wer=0.25)) == {"wer": 0.25}


def test_listening_goes_on_where_it_was_stopped(tmp_path):
    ear = Ear(TEXTS)

    def tires(wave: np.ndarray, language: str) -> str:
        if ear.calls == 2:
            raise KeyboardInterrupt
        return ear(wave, language)

    samples, options = find([SHARD])[0], CurateOptions(held_out=0)
    with pytest.raises(KeyboardInterrupt):
        curate(samples, tmp_path, options, load=lambda: tires, recogniser="ear")
    assert not (tmp_path / "train").exists()  # whole or not at all
    with (tmp_path / "heard.csv").open("a") as f:
        f.write("torn")  # in the middle of a line
    curate(samples, tmp_path, options, load=lambda: ear, recogniser="ear")
    assert ear.calls == 4 and clips(tmp_path, "train").keys() == TEXTS.keys()


def test_files_of_other_formats_that_were_heard_are_not_listened_to_again(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    audio.write(tmp_path / "in" / "a.wav", 0.1 * rng.standard_normal(48_000).astype(np.float32))
    (tmp_path / "in" / "a.txt").write_text("hello there\n")
    [sample] = find([tmp_path / "in"])[0]
    known = {zlib.crc32(sample.audio.read()): "hello there"}

    def load():
        raise AssertionError("listened again")

    clip = examine((sample, known), CurateOptions(), load)
    assert isinstance(clip, Clip) and clip.heard == "hello there" and not clip.fresh
    with pytest.raises(AssertionError, match="listened again"):  # to what sounds otherwise now
        examine((sample, known), CurateOptions(level=0.2), load)
    clip = examine((sample, known), CurateOptions(level=0.1))  # which it has
    assert isinstance(clip, Clip) and decode(clip.data)[1]  # an MP3, though nothing was evened
    pytest.importorskip("noisereduce")
    with pytest.raises(AssertionError, match="listened again"):
        examine((sample, known), CurateOptions(denoise=0.5), load)


def test_letters_count_where_there_are_few_words():
    pytest.importorskip("whisper_normalizer")
    assert misheard("Kathleen.", "Cathleen") < 0.5 < misheard("Yes.", "No")
    assert misheard("cats and dogs sleep", "cats and") == 0.5 and misheard("Hmm.", "Hmm.") == 0
    assert misheard("cats and dogs", "cats and docs") < 0.1  # of three words
    assert misheard("Ja mm hmm gut", "Ja mm hmm Hut", "de") == 0.25  # of four words, two in English
    assert misheard("Papà", "Papa", "it") == 0.25


def test_hours_are_capped_for_each_speaker(tmp_path):
    _, all_sides = split(tmp_path / "all", held_out=0)
    summary, sides = split(tmp_path / "some", held_out=0, max_hours=2.5 / 3600)
    assert len(sides["train"]) == 2 and sides["train"] < all_sides["train"]
    assert summary["speakers"]["kathleen"]["dropped"] == {"enough of this speaker": 2}


def test_only_named_speakers_are_kept_and_unknown_ones_are_a_mistake(tmp_path):
    samples = find([SHARD, FIXTURES / "ljspeech"])[0]
    summary, _ = curate(samples, tmp_path, CurateOptions(speaker="linda"), ["linda"])
    assert summary["speakers"]["linda"]["train_clips"] == 2
    assert summary["dropped"] == {"another speaker": 4}
    with pytest.raises(InputError, match="there are kathleen, linda"):
        curate(samples, tmp_path / "x", CurateOptions(speaker="linda"), ["anna"])


def test_speakers_to_be_measured_on_are_left_out_and_a_misspelt_one_is_a_mistake(tmp_path):
    samples = find([SHARD, FIXTURES / "ljspeech"])[0]
    options = CurateOptions(speaker="linda", without=("linda",))
    summary, _ = curate(samples, tmp_path, options)
    assert summary["speakers"]["linda"]["train_clips"] == 0
    assert summary["speakers"]["kathleen"]["train_clips"] > 0
    with pytest.raises(InputError, match="no clips of lynda"):
        curate(samples, tmp_path / "x", CurateOptions(without=("lynda",)))


def test_sources_and_licences_are_listed_by_hours(tmp_path):
    summary, _ = split(tmp_path, held_out=0)
    who = summary["speakers"]["kathleen"]
    assert who["source"].keys() == {"kathleen"} and who["license"].keys() == {"CC0-1.0"}
    assert who["train_hours"] == pytest.approx(sum(who["source"].values()), abs=1e-3)


def test_levels_are_evened_and_silence_is_cut(tmp_path):
    wave = audio.read(next(iter(find([SHARD])[0])).audio.read())
    quiet = np.pad(wave * 0.1, 24_000)
    evened = even(quiet, 0.07)
    assert evened is not None and audio.rms(evened) == pytest.approx(0.07, rel=0.01)
    assert len(evened) < len(wave) + 0.2 * 24_000
    assert even(evened, 0.07) is None  # once is enough
    assert even(evened, 0.03) is not None and even(evened, 0.08) is None  # 1.5 dB do not matter
    assert even(np.pad(evened, 6_000), 0.07) is not None
    assert even(np.pad(evened, 2_350), 0.07) is None  # neither do 0.2 s
    assert even(np.pad(evened, 2_450), 0.07) is not None
    for decibels, near in ((-1.6, False), (-1.4, True), (1.4, True), (1.6, False)):
        assert (even(evened, 0.07 * 10 ** (decibels / 20)) is None) == near
    softer = even(evened, 0.1 / np.abs(evened).max())  # 1.4 times as loud as it can be
    assert softer is not None and np.abs(softer).max() == 1  # rather than clipped


def test_mistakes_end_in_one_line(tmp_path, capsys):
    for more, said in (
        (["--min-seconds", "5", "--max-seconds", "6"], "no clip is left"),
        (
            ["--held-out", "1"],
            f"no clip is left to train on, of {len(TEXTS)}: {{'held out': {len(TEXTS)}}}",
        ),
        (["--held-out", "-1"], "--held-out is -1"),
        (["--level", "3"], "--level is 3"),
        (["--jobs", "0"], "--jobs is 0"),
        (["--vary", "0.1", "0.1"], "--vary names a share twice"),
    ):
        assert main([str(SHARD), "--out", str(tmp_path / "x"), "--jobs", "1", *more]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert said in error and error.startswith("error: ")
    assert main([str(SHARD), "--out", str(tmp_path), "--jobs", "1"]) == 0
    assert main([str(SHARD), "--out", str(tmp_path), "--jobs", "1"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    (tmp_path / "train" / ".DS_Store").touch()  # which a Mac leaves where somebody looked
    assert main([str(SHARD), "--out", str(tmp_path), "--jobs", "1", "--overwrite"]) == 0


def test_the_report_lists_what_was_dropped(tmp_path, capsys):
    argv = [str(SHARD), "--out", str(tmp_path), "--max-seconds", "1.5", "--jobs", "2"]
    assert main(argv) == 0
    out = capsys.readouterr().out.splitlines()
    assert json.loads(out[-1]) == json.loads((tmp_path / "curate.json").read_text())
    with (tmp_path / "dropped.csv").open(newline="") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == json.loads(out[-1])["dropped"]["too long"] == 2


def test_a_missing_recogniser_is_reported_first(tmp_path, capsys):
    argv = [str(SHARD), "--out", str(tmp_path), "--jobs", "1", "--whisper", str(tmp_path / "none")]
    loaded.cache_clear()
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_heard_csv_is_not_read_without_a_recogniser(tmp_path):
    (tmp_path / "heard.csv").write_text("not,a,table\n")
    with Heard(tmp_path / "heard.csv", "", used=False) as heard:
        assert heard.known == {}
    with pytest.raises(InputError, match="delete it"):
        Heard(tmp_path / "heard.csv", "")


def test_a_truncated_line_of_heard_csv_is_transcribed_again(tmp_path):
    path = tmp_path / "heard.csv"
    for _ in range(2):  # the first run ends before it heard anything
        with Heard(path, "w"):
            pass
    with Heard(path, "w") as heard:
        heard.add("a", b"1", "two\nlines", "two lines")
        heard.add("b", b"2", "and one", "and one")
    path.write_bytes(path.read_bytes()[:-4])
    with Heard(path, "w") as heard:
        assert heard.known.keys() == {"a"}
        heard.add("b", b"2", "and one", "and one")
    assert Heard(path, "w").known.keys() == {"a", "b"}


def test_another_file_in_the_place_of_heard_csv_keeps_its_last_line(tmp_path):
    """As where --out stands before the shards: the first of them would be cut."""
    for name, data in (("a.tar", SHARD.read_bytes()[:-1] + b"x"), ("b.txt", b"some words")):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(InputError, match="name another file"):
            Heard(path, "w")
        assert path.read_bytes() == data
    path.write_bytes(b"key,crc32,reco")  # killed in its first line
    assert not Heard(path, "w").known and not path.read_bytes()


# what curated clips sound like, and prompts of them


def test_levels_are_those_of_the_mels():
    samples = find([SHARD])[0]
    found = levels(samples)
    waves = [audio.trim(audio.read(s.audio.read())) for s in samples]
    assert found["prompt_rms"] == pytest.approx(np.median([audio.rms(w) for w in waves]), rel=0.02)
    assert -4 < found["mel_mean"] < 0 < found["mel_std"] < 4
    with pytest.raises(DataError):
        levels([])


def test_a_prompt_has_no_rumble(tmp_path):
    sample = find([SHARD])[0][0]
    poor = degraded(audio.read(sample.audio.read()), "rumble")
    audio.write(tmp_path / "low.wav", poor)
    (tmp_path / "low.txt").write_text(sample.text)
    found = measure(find([tmp_path])[0][0])
    assert found is not None and rumble(poor) > RUMBLES > rumble(found.wave)


def test_the_cleanest_clip_is_the_prompt():
    found = [c for s in find([SHARD])[0] if (c := measure(s)) is not None]
    candidates = [replace(c, seconds=3.0) for c in found]  # the fixtures are all shorter
    assert len(candidates) == 4
    best = choose(candidates)
    noise = np.random.default_rng(0).normal(0, 0.03, len(best.wave)).astype(np.float32)
    noisy = replace(best, wave=best.wave + noise, depth=depth(best.wave + noise))
    others = [c for c in candidates if c is not best]
    assert noisy.depth < best.depth and choose([noisy, *others]) is not noisy
    long = replace(best, seconds=6.5)
    assert choose([long, *others]) is not long


@pytest.mark.parametrize(
    ("plain", "doubtful"),
    [
        ("Der Fuß ist schöner als die Hand.", "Im Jahr 1912 ist es Nr. 5 am See."),
        ("Мама мыла раму весь день.", "Поезд 27 ушёл в 9:30 из ГУМа."),
        ("आज मौसम बहुत अच्छा है।", "आज 27 लोग 9:30 पर आए।"),
    ],
)
def test_a_prompt_has_no_numbers_where_another_has_none(plain, doubtful):
    one = next(c for s in find([SHARD])[0] if (c := measure(s)) is not None)
    said = [replace(one, sample=replace(one.sample, text=text)) for text in (doubtful, plain)]
    assert choose(said).sample.text == plain


def test_a_voice_is_written_with_its_words_and_licence(tmp_path, capsys):
    empty = tmp_path / "heldout"
    empty.mkdir()
    assert prompts([str(empty), str(SHARD), "--out", str(tmp_path / "voices")]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    text = (tmp_path / "voices/kathleen.txt").read_text().strip()
    assert document["kathleen"]["text"] == text and text in TEXTS.values()
    assert "CC0" in (tmp_path / "voices/kathleen.license.txt").read_text()
    assert len(audio.read(tmp_path / "voices/kathleen.flac")) > 24_000
    shutil.rmtree(tmp_path / "voices")
    assert prompts([str(SHARD), "--out", str(tmp_path), "--speakers", "anna"]) == 2
    assert "no clips of anna" in capsys.readouterr().err


def test_a_speaker_of_any_name_has_a_voice(tmp_path, capsys):
    """The recipe of a voice came to its end here, when it had listened to all recordings."""
    table, wav = tmp_path / "all.csv", SHARD.parent / "ljspeech/wavs/LJ001-0008.wav"
    table.write_text(f"audio,text,speaker\n{wav},has never been surpassed,Änne O'Neill\n", "utf-8")
    assert prompts([str(table), "--out", str(tmp_path / "voices")]) == 0
    assert {p.name for p in (tmp_path / "voices").iterdir()} == {
        f"Änne_O_Neill.{kind}" for kind in ("flac", "txt", "license.txt")
    }
    with table.open("a", encoding="utf-8") as f:
        f.write(f"{wav},has never been surpassed,Änne O_Neill\n")
    assert prompts([str(table), "--out", str(tmp_path / "voices")]) == 2
    assert "two speakers would be the voice Änne_O_Neill" in capsys.readouterr().err
