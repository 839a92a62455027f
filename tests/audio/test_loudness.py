"""Loudness: that of another implementation, levels that hold, peaks that stay below full scale."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import soundfile as sf
import soxr

from nanospeech.audio import limiter
from nanospeech.audio import loudness as ld
from nanospeech.audio.recording import clipped_share, clipping, flat_share
from nanospeech.release.voices import shipped_voices

RATE = 24_000


def recording(name: str) -> np.ndarray:
    wave, rate = sf.read(shipped_voices()[name], dtype="float32")
    assert rate == RATE
    return wave


def levelled(waves, target: float | None) -> list[np.ndarray]:
    return list(ld.Leveller(RATE, target)(waves))


def noise(seconds: float, level: float, seed: int = 0) -> np.ndarray:
    """Noise whose level swells and falls."""
    rng = np.random.default_rng(seed)
    n = int(seconds * RATE)
    return (rng.normal(size=n) * level * (1 + np.sin(np.arange(n) / 9000))).astype(np.float32)


@pytest.mark.parametrize("rate", [16_000, 24_000, 44_100, 48_000])
def test_loudness_is_another_implementations(rate):
    meter = pytest.importorskip("pyloudnorm").Meter(rate, "DeMan")
    for name in ("kathleen", "bella", "darshan"):
        speech = soxr.resample(recording(name).astype(np.float64), RATE, rate)
        speech = speech[: int(len(speech) / rate * 10) * rate // 10]  # whole steps: no part block
        pauses = np.concatenate([speech, np.zeros(3 * rate), 0.05 * speech])
        for wave in (speech, pauses):
            assert ld.loudness(wave, rate) == pytest.approx(
                meter.integrated_loudness(wave), abs=0.02
            )


def test_loudness_of_a_sine_is_the_standards():
    sine = np.sin(2 * np.pi * 997 * np.arange(3 * 48_000) / 48_000)
    assert ld.loudness(sine, 48_000) == pytest.approx(-3.01, abs=0.01)
    assert ld.loudness(sine[:4800], 48_000) == pytest.approx(-3.01, abs=0.3)  # shorter than a block
    assert ld.loudness(np.zeros(RATE), RATE) == ld.loudness(np.zeros(0), RATE) == -np.inf


def test_true_peaks_lie_between_samples():
    # a sine at a quarter of the rate, sampled 45 degrees beside its crests: 3.01 dB below them
    sine = np.sin(np.pi / 2 * np.arange(4000) + np.pi / 4)
    assert 20 * np.log10(np.abs(sine).max()) == pytest.approx(-3.01, abs=0.01)
    assert limiter.true_peak(sine[:2000] * np.hanning(2000)) == pytest.approx(0, abs=0.1)
    for name in ("kathleen", "kumo"):
        fine = soxr.resample(recording(name).astype(np.float64), 1, 16, quality="VHQ")
        peak = 20 * np.log10(np.abs(fine).max())
        assert limiter.true_peak(recording(name)) == pytest.approx(peak, abs=0.05)


def test_points_between_samples_are_those_of_sines():
    at, place = np.arange(1, 8)[:, None] / 8, np.arange(-15, 17)
    for hertz in range(0, 10_001, 500):
        turn = 2j * np.pi * hertz / RATE
        found = limiter.interpolators() @ np.exp(turn * place)
        assert np.abs(found - np.exp(turn * at[:, 0])).max() < 3e-3


def test_no_peak_above_what_matters_is_passed_over():
    rng = np.random.default_rng(0)
    spiky = rng.standard_normal(20_000) * rng.random(20_000) ** 8
    for wave in (spiky, recording("kathleen").astype(np.float64), np.cos(np.pi * np.arange(99))):
        full = limiter.peaks(wave)
        for above in (0.1, 0.5, 0.9):
            some = limiter.peaks(wave, above)
            assert np.array_equal(some > above, full > above)
            assert np.allclose(some[full > above], full[full > above], rtol=1e-6)


@pytest.mark.parametrize("name", ["kathleen", "kumo", "robin"])
@pytest.mark.parametrize("target", [-18.0, -12.0])
def test_waves_are_levelled_and_never_clip(name, target):
    out = np.concatenate(levelled([recording(name)], target))
    if target == -18:  # louder, some voices' peaks leave no room
        assert ld.loudness(out, RATE) == pytest.approx(target, abs=0.2)
    fine = soxr.resample(out.astype(np.float64), 1, 16, quality="VHQ")
    assert 20 * np.log10(np.abs(fine).max()) <= limiter.PEAK
    assert len(out) == len(recording(name))


def test_as_loud_as_peaks_allow_and_what_they_do_not_is_told_once(caplog):
    for name in ("kathleen", "kumo", "darshan"):  # of the highest peaks
        out = np.concatenate(levelled([recording(name)], -16.0))
        assert ld.loudness(out, RATE) == pytest.approx(-16, abs=0.1)
    assert not caplog.messages
    level = ld.Leveller(RATE, -9.0)
    for _ in range(2):
        out = np.concatenate(list(level([recording("kumo")])))
    assert [m.split(":")[0] for m in caplog.messages] == [
        f"the speech has about {ld.loudness(out, RATE):.1f} LUFS, not the -9 asked for"
    ]


def test_levels_do_not_depend_on_how_a_wave_was_cut():
    wave = noise(3, 0.3)
    cuts = np.sort(np.random.default_rng(1).integers(0, len(wave), 200))
    for target in (-18.0, None):
        whole = np.concatenate(levelled([wave], target))
        pieces = levelled(np.split(wave, cuts), target)
        assert len(pieces) > 1 or target is not None  # a gain that is measured waits for all
        assert np.allclose(np.concatenate(pieces), whole, atol=1e-6)


@pytest.mark.parametrize("cuts", [[], [1, 1], [5_000, 30_000, 30_001], range(100, 70_000, 9_000)])
def test_pieces_are_heard_as_one_wave_and_weighted_once(cuts, monkeypatch):
    wave, hearing, given, weighted = noise(3, 0.1), ld.Hearing(RATE), [], ld.weighted
    wanted = ld.heard(wave, RATE)
    monkeypatch.setattr(ld, "weighted", lambda w, rate: given.append(len(w)) or weighted(w, rate))
    assert not len(hearing.blocks())
    for piece in np.split(wave, cuts):
        hearing.add(piece)
    assert len(hearing) == len(wave)
    assert sum(given) == len(wave) + (len(cuts) + 1) * len(hearing.before)
    np.testing.assert_allclose(hearing.blocks(), wanted, rtol=1e-6)


def test_a_stream_waits_for_nothing_where_its_voice_is_known():
    waves = iter([noise(1, 0.01), noise(1, 0.01, 1)])
    first = next(ld.Leveller(RATE, -18.0, known=-24.0)(waves, early=True))
    assert len(first) > 0.9 * RATE
    assert next(waves, None) is not None  # the second was not asked for
    middle = slice(RATE // 4, RATE // 2)
    assert np.allclose(first[middle], noise(1, 0.01)[middle] * 10 ** (6 / 20), rtol=1e-4)


@pytest.mark.parametrize(("target", "early"), [(-18.0, True), (-18.0, False), (None, False)])
def test_what_a_stream_hands_out_may_be_changed(target, early):
    def streamed() -> Iterator[np.ndarray]:
        pieces = (noise(0.4, level, seed) for seed, level in enumerate((0.3, 0.5, 0.1, 0.4)))
        return ld.Leveller(RATE, target)(pieces, early=early)

    wanted = [wave.copy() for wave in streamed()]
    found = []
    for wave in streamed():
        found.append(wave.copy())
        wave *= 32767
    assert len(found) == len(wanted) and all(map(np.array_equal, found, wanted))


def test_a_stream_of_a_word_tells_nothing_of_those_that_follow():
    leveller = ld.Leveller(RATE, -18.0)
    alone = np.concatenate([*ld.Leveller(RATE, -18.0)(iter([noise(2, 0.05)]), early=True)])
    list(leveller(iter([noise(0.6, 0.002)]), early=True))
    after = np.concatenate([*leveller(iter([noise(2, 0.05)]), early=True)])
    assert np.array_equal(after, alone)


@pytest.mark.parametrize("off", [-4.0, 3.0])
def test_a_stream_comes_closer_to_its_loudness_as_it_is_heard(off):
    wave = (0.03 * np.random.default_rng(0).normal(size=4 * RATE)).astype(np.float32)
    sizes = np.cumsum([RATE // 2, RATE, RATE])
    known = ld.loudness(wave, RATE) + off  # of the voice; this sentence is said otherwise
    pieces = list(ld.Leveller(RATE, -20.0, known)(iter(np.split(wave, sizes)), early=True))
    out = np.concatenate(pieces)
    assert len(out) == len(wave)
    assert ld.loudness(out, RATE) == pytest.approx(-20, abs=abs(off) / 2)
    assert ld.loudness(out[-RATE:], RATE) == pytest.approx(-20, abs=1.0)
    start = out[RATE // 8 : RATE // 4] / wave[RATE // 8 : RATE // 4]
    assert 20 * np.log10(np.median(start)) == pytest.approx(-20 - known, abs=0.01)
    gains = 20 * np.log10(np.abs(out[300:-300]) / np.maximum(np.abs(wave[300:-300]), 1e-9))
    gains = gains[np.abs(wave[300:-300]) > 1e-4]
    assert np.abs(np.diff(gains)).max() < 0.01  # no step is heard


@pytest.mark.parametrize("off", [-6.0, 6.0])
def test_a_streams_gain_moves_soon_and_by_4_db_a_second(off):
    wave = (0.02 * np.random.default_rng(0).choice([-1, 1], 2 * RATE)).astype(np.float32)
    pieces = ld.Leveller(RATE, -20.0, ld.loudness(wave, RATE) + off)(
        iter(np.split(wave, 40)), early=True
    )
    inner = slice(RATE // 50, -RATE // 50)  # between the fades
    gains = 20 * np.log10(np.concatenate(list(pieces))[inner] / wave[inner])
    moved = np.flatnonzero(np.abs(gains - gains[0]) > 1e-3) + RATE // 50
    assert 0.25 <= moved[0] / RATE < 0.3  # a quarter of a second was heard
    slope = np.abs(gains[RATE // 10 :] - gains[: -RATE // 10]).max()
    assert slope == pytest.approx(0.4, abs=0.01)


def test_silence_does_not_move_a_streams_gain():
    quiet = np.zeros(3 * RATE, np.float32)
    level = ld.Leveller(RATE, -20.0, -26.0)
    out = np.concatenate(list(level([quiet[:RATE], quiet, noise(1, 0.02)], early=True)))
    speech = slice(4 * RATE + RATE // 8, 4 * RATE + RATE // 4)
    gain = out[speech] / noise(1, 0.02)[RATE // 8 : RATE // 4]
    assert np.isfinite(out).all() and not out[: 4 * RATE].any()
    assert abs(20 * np.log10(np.median(gain)) - 6) < 1  # a quarter of a second at 4 dB a second


def test_the_peaks_of_an_utterance_are_looked_for_once(monkeypatch):
    looked, peaks = [], limiter.peaks
    for module in (ld, limiter):
        monkeypatch.setattr(
            module, "peaks", lambda w, above=0.0: looked.append(len(w)) or peaks(w, above)
        )
    out = levelled(np.array_split(recording("kumo"), 9), -14.0)
    assert looked == [len(recording("kumo"))]
    assert limiter.true_peak(np.concatenate(out)) <= limiter.PEAK


def test_streams_of_an_unknown_voice_keep_the_gain_of_the_first():
    level = ld.Leveller(RATE, -20.0)
    list(level([np.zeros(2 * RATE, np.float32)], early=True))  # which tells nothing of a voice
    first = np.concatenate(list(level([noise(1, 0.02), noise(2, 0.04, 1)], early=True)))
    assert ld.loudness(first[:RATE], RATE) == pytest.approx(-20, abs=0.2)
    second = np.concatenate(list(level([noise(1, 0.01)], early=True)))
    assert ld.loudness(second, RATE) == pytest.approx(-26, abs=0.3)
    whole = np.concatenate(list(level([noise(1, 0.01)])))
    assert ld.loudness(whole, RATE) == pytest.approx(-20, abs=0.1)


def test_what_is_nearly_silent_is_not_raised_to_noise():
    wave = noise(2, 1e-3)
    for early, known in ((False, None), (True, None), (True, -70.0)):
        pieces = ld.Leveller(RATE, -14.0, known)(iter(np.array_split(wave, 4)), early)
        out = np.concatenate(list(pieces))
        gains = out[RATE // 2 : -RATE // 2] / wave[RATE // 2 : -RATE // 2]
        assert 20 * np.log10(np.median(gains)) == pytest.approx(30, abs=0.01)


def test_ctrl_c_hands_out_what_there_is():
    def interrupted(seconds: float = 2):
        yield noise(seconds, 0.02)
        raise KeyboardInterrupt

    found = []
    with pytest.raises(KeyboardInterrupt):
        for wave in ld.Leveller(RATE, -20.0)(interrupted()):
            found.append(wave)
    assert sum(map(len, found)) == 2 * RATE
    assert ld.loudness(np.concatenate(found), RATE) == pytest.approx(-20, abs=0.1)


@pytest.mark.parametrize("target, known", [(-20.0, None), (-20.0, -34.0), (None, None)])
@pytest.mark.parametrize("seconds", [0.7, 2.0])  # before a voice's first second, and after it
def test_ctrl_c_in_a_stream_hands_out_all_of_it_and_fades_its_end(target, known, seconds):
    wave, found = noise(seconds, 0.02), []

    def interrupted():
        yield from np.array_split(wave, 7)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for piece in ld.Leveller(RATE, target, known)(interrupted(), early=True):
            found.append(piece)
    whole = ld.Leveller(RATE, target, known)(np.array_split(wave, 7), early=True)
    assert np.array_equal(np.concatenate(found), np.concatenate(list(whole)))
    assert len(np.concatenate(found)) == len(wave) and abs(found[-1][-1]) < 1e-3


@pytest.mark.parametrize(("crest", "most"), [(1, 0.0), (30, 3.0)])
def test_at_most_three_decibels_make_up_for_what_limiting_takes(crest, most):
    rng = np.random.default_rng(0)
    wave = (0.01 * rng.standard_normal(2 * RATE)).astype(np.float32)
    wave[::480] *= crest
    more = ld.gain_to(-14.0, wave, RATE) - (-14.0 - ld.loudness(wave, RATE))
    assert more == pytest.approx(most, abs=1e-4)


def test_the_gain_of_long_waves_is_that_of_their_first_half_minute():
    quiet, more, loud = noise(27, 0.01), noise(4, 0.02), noise(5, 0.04)
    out = np.concatenate(levelled([quiet, more, loud], -30.0))
    assert ld.loudness(out[: 30 * RATE], RATE) == pytest.approx(-30, abs=0.1)
    assert ld.loudness(out[31 * RATE :], RATE) > -25


def test_the_limiter_leaves_alone_what_needs_no_limit():
    wave = recording("kathleen")
    assert np.array_equal(np.concatenate(list(limiter.limited([wave], RATE))), wave)
    peak = wave.copy()
    peak[40_000] = 1.2
    out = np.concatenate(list(limiter.limited([peak], RATE)))
    far = int(2.1 * limiter.AHEAD * RATE)
    assert np.array_equal(out[: 40_000 - far], wave[: 40_000 - far])
    assert np.array_equal(out[40_000 + far :], wave[40_000 + far :])
    assert np.abs(out).max() < 10 ** (limiter.PEAK / 20)


def test_a_limiters_gain_is_the_least_around_averaged_over_as_long():
    """In float64, of the peaks at and beside each sample; 1.2 dB below full scale are left."""
    found = np.abs(np.random.default_rng(0).standard_normal(300)) ** 3 / 4
    last, reach = len(found) - 1, 7
    beside = [max(found[max(i - 1, 0)], found[i]) for i in range(len(found))]
    wanted = [min(1, 10 ** (-1.2 / 20) / peak) for peak in beside]
    least = [min(wanted[max(i - reach, 0) : i + reach + 1]) for i in range(len(found))]
    gains = [
        np.mean([least[min(max(i + k, 0), last)] for k in range(-reach, reach + 1)])
        for i in range(len(found))
    ]
    assert 0.2 < np.mean(np.array(wanted) < 1) < 0.8
    assert np.allclose(limiter.limiting(found, reach), gains, atol=1e-12)


def test_a_limiter_begins_30_ms_before_a_peak_and_ends_30_ms_after():
    wave = (0.1 * np.random.default_rng(0).choice([-1, 1], RATE)).astype(np.float32)
    wave[RATE // 2] = 2
    moved = np.flatnonzero(np.concatenate(list(limiter.limited([wave], RATE))) != wave)
    first, last = moved[[0, -1]] - RATE // 2
    assert -0.031 < first / RATE < -0.029 and 0.029 < last / RATE < 0.031


def test_ends_fade_and_silence_stays():
    for n in (0, 1, 7, 300, 5000):
        out = list(ld.faded([np.ones(n, np.float32)], 240))
        whole = np.concatenate([np.zeros(0, np.float32), *out])
        assert len(whole) == n
        assert (whole[:1] <= 0.6).all() and (whole[-1:] <= 0.6).all()
        assert np.array_equal(whole, whole[::-1])
        assert (np.diff(whole[: n // 2]) >= 0).all()
    assert not np.concatenate(levelled([np.zeros(9000, np.float32)], -18.0)).any()
    assert levelled([], -18.0) == []


def test_clipped_recordings_are_known():
    wave = recording("kumo")
    assert clipped_share(wave) == clipped_share(np.zeros(0)) == 0
    assert clipped_share(np.clip(10 * wave, -1, 1)) > 0.01
    few = np.zeros(100)
    few[10:12] = 1  # two samples may be a peak that just fits
    assert clipped_share(few) == 0
    few[50:53] = -1
    assert clipped_share(few) == pytest.approx(0.03)


def bits(wave: np.ndarray, count: int) -> np.ndarray:
    """As a file of so many bits has it."""
    return np.round(wave * 2 ** (count - 1)) / 2 ** (count - 1)


def test_what_was_clipped_before_it_was_made_softer_is_known(tmp_path):
    wave = recording("kumo") / np.abs(recording("kumo")).max()
    loud = np.clip(4 * wave, -1, 1)
    wanted = clipped_share(loud)
    for level in (0.7, 0.1):
        assert flat_share(bits(level * loud, 16)) == pytest.approx(wanted, rel=0.2)
    sf.write(tmp_path / "soft.wav", 0.5 * np.stack([0 * loud, loud], 1), RATE)
    assert clipping(tmp_path / "soft.wav") == pytest.approx(wanted, rel=0.2)
    assert flat_share(0.5 * np.sign(np.sin(np.arange(RATE) / 9))) > 0.9  # a square wave, all of it


def flattened(places: Sequence[int], length: int = 3, beside: float = 0.3) -> np.ndarray:
    """A tone of 0.4 with flat tops of 0.5 at some places, each between two samples."""
    wave = 0.4 * np.sin(np.arange(4000) / 7)
    for at in places:
        wave[at : at + length] = 0.5
        wave[[at - 1, at + length]] = beside
    return wave


def test_flat_tops_count_where_there_are_three_within_a_recording():
    inside = (100, 900, 2500)
    for side in (1, -1):
        assert flat_share(side * flattened(inside)) == 9 / 4000
        assert flat_share(side * flattened(inside, length=5)) == 15 / 4000
        assert flat_share(side * flattened(inside[:2])) == 0
        assert flat_share(side * flattened(inside, length=2)) == 0  # two may be a peak that fits
        assert flat_share(side * flattened(inside, beside=0.498)) == 0  # it is round
        assert flat_share(side * flattened((1, *inside[1:]))) == 9 / 4000
        slow = flattened(inside)
        slow[103] = 0.498
        assert flat_share(side * slow) == 0
        assert flat_share(side * flattened((0, *inside[:2]))) == 0  # nobody knows what was before
        assert flat_share(side * flattened(inside)[:2503]) == 0  # or comes then
        coarse = np.round(flattened(inside) * 200) / 200  # all its tops are flat
        assert flat_share(side * coarse) == 0
    both = flattened(inside)
    for at in (400, 1300, 3000, 3500):
        both[at - 1 : at + 4] = -0.3, -0.5, -0.5, -0.5, -0.3
    assert flat_share(both) == 21 / 4000


def test_a_round_top_is_not_clipped():
    """Nor one that is flat as the file's steps are coarse, of which telephones' are at the top."""
    wave = recording("kumo") / np.abs(recording("kumo")).max()
    tones = [np.sin(2 * np.pi * hertz * np.arange(RATE) / RATE) for hertz in (40, 150, 400, 1000)]
    coded = np.sign(wave) * np.expm1(np.round(np.log1p(255 * np.abs(wave)) * 23) / 23) / 255
    limited = np.concatenate(list(limiter.limited([3 * wave], RATE)))
    for one in (wave, limited, coded, bits(wave[::3], 8), bits(wave, 8), *tones, np.zeros(0)):
        assert flat_share(one) == 0
    assert flat_share(bits(0.5 * wave, 16)) == 0


@pytest.mark.parametrize(
    ("subtype", "clips"), [("FLOAT", False), ("DOUBLE", False), ("PCM_24", True)]
)
def test_what_a_file_of_floats_has_above_full_scale_is_not_clipped(tmp_path, subtype, clips):
    loud = 10 * recording("kumo")
    sf.write(tmp_path / "loud.wav", loud, RATE, subtype=subtype)
    assert (clipping(tmp_path / "loud.wav") > 0.01) == clips
    sf.write(tmp_path / "loud.wav", np.clip(loud, -1, 1), RATE, subtype=subtype)
    assert clipping(tmp_path / "loud.wav") > 0.01
