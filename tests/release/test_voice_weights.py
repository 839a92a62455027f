"""Voices with weights of their own: the arithmetic, both backends, and files that do not fit."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
import threading
import weakref

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from convert import convert
from nanospeech import SampleOptions, Speaker, load_engine
from nanospeech.engine.worker import Worker
from nanospeech.errors import CheckpointError, InputError
from nanospeech.evaluate import durations
from nanospeech.release.folder import MODEL, open_release
from nanospeech.release.quantization import PackedWeight, pack_layers, unpacked
from nanospeech.release.voice_weights import DOWN, UP, added, difference, is_thin
from nanospeech.release.voices import find_voice
from tests.conftest import needs
from tests.training import SHARD

OPTIONS = SampleOptions("euler", 2)
TEXT = "hello there."


def models(seed: int = 0) -> tuple[dict, dict]:
    """Two models that differ by a matrix of rank 3, a convolution and a vector."""
    rng = np.random.default_rng(seed)
    base = {
        "matrix": rng.standard_normal((120, 200)),
        "kernel": rng.standard_normal((64, 16, 31)),
        "vector": rng.standard_normal(50),
    }
    base = {name: t.astype(np.float32) for name, t in base.items()}
    tuned = {name: t.copy() for name, t in base.items()}
    tuned["matrix"] += (rng.standard_normal((120, 3)) @ rng.standard_normal((3, 200))) / 10
    tuned["kernel"] += rng.standard_normal((64, 1, 1)) * rng.standard_normal((1, 16, 31)) / 10
    tuned["vector"] += 1
    return base, tuned


def test_a_change_of_low_rank_is_kept_whole(tmp_path):
    base, tuned = models()
    change = difference(base, tuned, 50 + 3 * 320 + 560)
    assert change["matrix" + UP].shape == (120, 3) and change["matrix" + DOWN].shape == (3, 200)
    again = added(base, change, tmp_path)
    for name, tensor in tuned.items():
        assert again[name].shape == tensor.shape and np.abs(again[name] - tensor).max() < 5e-3


def test_what_carries_most_is_kept_where_not_all_can_be(tmp_path):
    base, tuned = models()
    sizes = [600, 1000, 2000]
    errors = []
    for numbers in sizes:
        change = difference(base, tuned, numbers)
        assert sum(t.size for t in change.values()) <= numbers
        again = added(base, change, tmp_path)
        errors.append(sum(((again[n] - tuned[n]) ** 2).sum() for n in tuned))
    nothing = sum(((base[n] - tuned[n]) ** 2).sum() for n in tuned)
    assert nothing > errors[0] > errors[1] > errors[2] > 0


@pytest.mark.parametrize("numbers", [0, 39, 40, 100, 219, 220, 300, 320, 600, 900])
def test_the_singular_vectors_with_most_energy_for_their_length_are_kept(numbers):
    """Energy is the square of a value; of vectors that do not fit, shorter ones take the room."""
    rng = np.random.default_rng(1)
    values = {"short": 0.95 * 0.8 ** np.arange(20), "long": 2.0 * 0.75 ** np.arange(20)}
    sizes, tuned = {"short": (20, 20), "long": (20, 200)}, {}
    for name, (rows, columns) in sizes.items():
        u, v = (np.linalg.qr(rng.standard_normal((n, 20)))[0] for n in (rows, columns))
        tuned[name] = ((u * values[name]) @ v.T).astype(np.float32)
    change = difference({n: np.zeros_like(t) for n, t in tuned.items()}, tuned, numbers)
    worth = sorted(((s**2 / sum(sizes[n]), n) for n in sizes for s in values[n]), reverse=True)
    ranks, left = dict.fromkeys(sizes, 0), numbers
    for _, name in worth:
        if sum(sizes[name]) <= left:
            left -= sum(sizes[name])
            ranks[name] += 1
    assert sum(t.size for t in change.values()) == numbers - left
    for name, rank in ranks.items():
        assert (name + UP in change) == (name + DOWN in change) == (rank > 0)
        if rank:
            product = change[name + UP].astype(np.float64) @ change[name + DOWN]
            kept = np.linalg.svd(product, compute_uv=False)[:rank]
            assert len(change[name + DOWN]) == rank
            assert kept == pytest.approx(values[name][:rank], rel=2e-3)


def test_what_has_few_rows_or_columns_is_kept_whole():
    thin = {(): True, (99,): True, (8, 99): True, (99, 8): True, (9, 9): False}
    thin |= {(99, 2, 4): True, (99, 3, 3): False, (8, 9, 9): True, (9, 9, 9): False}
    assert {shape: is_thin(np.zeros(shape)) for shape in thin} == thin


def test_changes_are_stored_short_and_added_in_float32(tmp_path):
    base, tuned = models()
    change = difference(base, tuned, 9999)
    assert {t.dtype for t in change.values()} == {np.dtype(np.float16)}
    short = {name: t.astype(np.float16) for name, t in base.items()}
    again = added(short, change, tmp_path)["matrix"]
    up, down = (change["matrix" + end].astype(np.float64) for end in (UP, DOWN))
    assert again.dtype == np.float32
    assert np.abs(again - (short["matrix"] + up @ down)).max() < 1e-5


def test_packed_weights_become_floats_as_they_are_changed(tmp_path):
    (base, tuned), name = models(), "matrix.weight"
    base, tuned = ({name: m["matrix"][:, :192], "vector": m["vector"]} for m in (base, tuned))
    packed = pack_layers(base, {"matrix": 8}, 64)
    assert isinstance(packed[name], PackedWeight)
    change = difference(base, tuned, 2000)
    assert change.keys() == {name + UP, name + DOWN, "vector"}
    found, wanted = (added(b, change, tmp_path) for b in (packed, unpacked(packed)))
    assert all(np.array_equal(found[n], wanted[n]) and found[n].dtype != object for n in wanted)
    assert added(packed, {}, tmp_path)[name].dtype == np.float32
    assert isinstance(packed[name], PackedWeight)


def test_models_that_are_not_alike_have_no_difference():
    base, tuned = models()
    assert difference(base, tuned, 50).keys() == {"vector"}  # room for that alone
    with pytest.raises(InputError, match="differ in their tensors"):
        difference(base, {**tuned, "matrix": tuned["matrix"][:, :9]}, 9999)
    with pytest.raises(InputError, match=r"49 numbers are too few: .* are 50"):
        difference(base, tuned, 49)


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": np.zeros(3)},
        {"vector": np.zeros(51)},
        {"matrix" + UP: np.zeros((120, 2))},
        {"matrix" + DOWN: np.zeros((2, 200))},
        {"matrix" + UP: np.zeros((120, 2)), "matrix" + DOWN: np.zeros((2, 199))},
        {"matrix" + UP: np.zeros((120, 2)), "matrix" + DOWN: np.zeros((3, 200))},
        {"matrix" + UP: np.zeros((119, 2)), "matrix" + DOWN: np.zeros((2, 200))},
    ],
)
def test_a_file_of_another_model_is_refused(change, tmp_path):
    with pytest.raises(CheckpointError, match="does not fit the model beside it"):
        added(models()[0], change, tmp_path / "anna.safetensors")


def spoken(engine, voice: str) -> np.ndarray:
    return Speaker(engine, voice, options=OPTIONS, seed=1).speak(TEXT).wave


def test_a_voice_speaks_with_its_weights_and_others_without(two_voices, backend):
    folder, alone = two_voices
    engine = load_engine(folder, backend, "cpu", "float32")
    own = spoken(load_engine(alone, backend, "cpu", "float32"), "tone")
    before = spoken(engine, "tone")
    wave = spoken(engine, "other")
    assert wave.shape == own.shape and np.abs(wave - own).max() <= 1e-5
    assert wave.shape != before.shape or np.abs(wave - before).max() > 1e-3
    assert np.array_equal(spoken(engine, "tone"), before)
    # from a speaker's own engine as well, and one network for each voice
    speaker = Speaker(engine, "other", options=OPTIONS, seed=1)
    assert np.array_equal(spoken(speaker.engine, "tone"), before)
    assert len(engine.voice_engines) == 1


def test_a_voice_outlives_the_engine_that_it_came_of(two_voices, uncollected):
    folder, _ = two_voices
    engine = load_engine(folder, "torch", "cpu", "float32")
    speaker = Speaker(engine, "other", seed=1)
    before = speaker.speak("Hello there.").wave
    own, gone = weakref.ref(speaker.engine), weakref.ref(engine)
    assert engine.with_voice(speaker.engine.release.voice) is speaker.engine
    del engine
    assert gone() is None
    tone = Speaker(speaker.engine, "tone", seed=1)  # of the same folder
    assert tone.engine is not speaker.engine
    assert np.array_equal(speaker.speak("Hello there.").wave, before)
    del speaker, tone
    assert own() is None


def test_voices_speak_through_a_worker(two_voices, backend):
    folder, _ = two_voices
    names = set()

    def load():
        names.add(threading.current_thread().name)
        return load_engine(folder, backend, "cpu", "float32")

    worker = Worker(load)
    speaker = Speaker(worker, "other", options=OPTIONS, seed=1)  # type: ignore[arg-type]
    assert isinstance(speaker.engine, Worker) and names == {"nanospeech"}
    assert np.array_equal(speaker.speak(TEXT).wave, spoken(load(), "other"))


def test_quantised_models_have_voices_too(two_voices, backend):
    folder, _ = two_voices
    engine = load_engine(folder, backend, "cpu", "float32", quantize=8)
    plain = load_engine(folder, backend, "cpu", "float32")
    a, b = (spoken(e, "other") for e in (engine, plain))
    assert a.shape == b.shape and 0 < np.abs(a - b).max() < 0.2 * np.abs(b).max() + 0.05


def test_damaged_weights_are_an_error_that_names_the_file(two_voices, backend):
    folder, _ = two_voices
    (folder / "voices" / "other.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"other\.safetensors"):
        Speaker(load_engine(folder, backend, "cpu"), "other")


def test_prompts_go_to_another_model_without_weights_and_to_a_copy_with_them(two_voices, tmp_path):
    folder, alone = two_voices
    (folder / "voices" / "other.json").write_text('{"pace": 1.2}')
    convert(folder, tmp_path / "copy")
    convert(alone, tmp_path / "another", voices=folder / "voices")
    for name, there in (("copy", True), ("another", False)):
        assert (tmp_path / name / "voices" / "other.wav").is_file()
        for suffix in (".safetensors", ".json"):
            assert (tmp_path / name / "voices" / f"other{suffix}").is_file() == there


def predicted(folder, out, *more) -> list[dict[str, str]]:
    flags = ["--shards", str(SHARD), "--held-out", "0", "--backend", "torch", "--out", str(out)]
    assert durations.main([*flags, "--model", str(folder), *more]) == 0
    with (out / "durations.csv").open(newline="") as f:
        return list(csv.DictReader(f))


def test_a_speakers_durations_are_predicted_with_the_speakers_voice(two_voices, tmp_path):
    pytest.importorskip("matplotlib", reason="it is of the extra eval")
    folder, alone = two_voices
    rows = predicted(folder, tmp_path / "a", "--own", "kathleen=other")
    assert {r["prompt"] for r in rows if r["speaker"] == "kathleen"} == {"other"}
    same = predicted(alone, tmp_path / "b", "--own", "kathleen=tone")
    plain = predicted(folder, tmp_path / "c", "--own", "kathleen=tone")
    tokens = [[r["tokens"] for r in found] for found in (rows, same, plain)]
    assert tokens[0] == tokens[1] != tokens[2]


def test_a_voices_pace_is_measured_and_kept(two_voices, tmp_path, backend):
    pytest.importorskip("matplotlib", reason="it is of the extra eval")
    folder, _ = two_voices
    own = ["--own", "*=tone"]
    before = predicted(folder, tmp_path / "a", *own, "--set-pace")
    pace = find_voice("tone", folder).settings.pace
    assert (
        json.loads((folder / "voices" / "tone.json").read_text()) == {"pace": pace} != {"pace": 1}
    )
    guessed, true = np.array([[float(r[k]) for k in ("tokens", "seconds")] for r in before]).T
    best = min(true / guessed, key=lambda factor: np.abs(factor * guessed / true - 1).mean())
    assert pace == pytest.approx(best, abs=1e-3)
    engine = load_engine(folder, backend, "cpu", "float32")
    quick = Speaker(engine, "tone", options=OPTIONS, seed=1)
    other = Speaker(engine, ref_audio=find_voice("tone", folder).audio, ref_text="ah")
    assert quick.prompt.settings.pace == pace and other.prompt.settings.pace == 1
    shutil.copytree(folder, tmp_path / "plain")
    (tmp_path / "plain" / "voices" / "tone.json").unlink()
    plain = load_engine(tmp_path / "plain", backend, "cpu", "float32")
    tokens = engine.tokenizer.encode(TEXT * 4)
    usual = Speaker(plain, "tone", options=OPTIONS, seed=1).frames(TEXT, tokens)
    (folder / "voices" / "tone.json").write_text('{"pace": 1.4}')
    slow = Speaker(engine, "tone", options=OPTIONS, seed=1).frames(TEXT, tokens)
    assert slow == pytest.approx(1.4 * usual, rel=0.02)


def test_a_voice_has_a_speed_of_its_own_that_its_speakers_clips_do_not(
    two_voices, tmp_path, backend
):
    folder, _ = two_voices
    engine = load_engine(folder, backend, "cpu", "float32")
    tokens, tempo = engine.tokenizer.encode(TEXT * 4), folder / "voices" / "tone.json"

    def frames(**options) -> int:
        return Speaker(engine, "tone", seed=1, **options).frames(TEXT, tokens)

    tempo.write_text('{"pace": 1.1}')
    usual, true = frames(), predicted(folder, tmp_path / "a", "--own", "*=tone")
    tempo.write_text('{"pace": 1.1, "speed": 0.8}')
    assert frames() == pytest.approx(usual / 0.8, rel=0.02)
    assert frames(speed=0.8) == pytest.approx(usual / 0.8**2, rel=0.02)
    assert frames(speed=1.25) == frames(speed=1.0) == frames()  # faster, its mel is stretched
    assert predicted(folder, tmp_path / "b", "--own", "*=tone") == true
    predicted(folder, tmp_path / "c", "--own", "*=tone", "--set-pace")
    assert json.loads(tempo.read_text())["speed"] == 0.8


def test_a_voice_has_a_guidance_of_its_own_until_another_is_asked_for(two_voices, backend):
    folder, _ = two_voices
    engine = load_engine(folder, backend, "cpu", "float32")

    def said(**asked) -> np.ndarray:
        speaker = Speaker(engine, "tone", seed=1)
        speaker.options = dataclasses.replace(OPTIONS, **asked)  # also when it is said later
        return speaker.speak(TEXT).wave

    usual = said(cfg_strength=None)
    assert np.array_equal(usual, said(cfg_strength=engine.config.cfg_strength))
    (folder / "voices" / "tone.json").write_text('{"cfg_strength": 0.5}')
    assert np.array_equal(said(cfg_strength=None), said(cfg_strength=0.5))
    assert not np.array_equal(said(cfg_strength=None), usual)
    assert np.array_equal(said(cfg_strength=engine.config.cfg_strength), usual)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"pace": "fast"}', '{"pace": 9}', '{"pace": NaN}', '{"speed": 0}']
    + ['{"cfg_strength": -1}', '{"cfg": 2}'],
)
def test_a_manner_that_cannot_be_names_its_file(two_voices, text):
    folder, _ = two_voices
    (folder / "voices" / "tone.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"tone\.json"):
        find_voice("tone", folder)


def test_training_starts_from_a_voice_where_it_is_asked_for(two_voices):
    needs("torch")
    from nanospeech_torch.finetune.start import own_weights
    from nanospeech_torch.train.initial import load_objective

    folder, alone = two_voices
    release = open_release(folder)
    voiced = dataclasses.replace(release, voice=own_weights("other", release).weights)
    found, wanted = (load_objective(r).state_dict() for r in (voiced, alone))
    assert found.keys() == wanted.keys()
    assert all(np.allclose(found[n], wanted[n], atol=1e-6) for n in wanted)
    assert own_weights("tone", release).weights is None  # it speaks with the model's
    with pytest.raises(
        InputError, match=r"no voice .* of its own that its model speaks; .*other, tone, none"
    ):
        own_weights("default/kumo", release)


def test_a_run_goes_on_from_the_weights_that_it_began_with_alone(two_voices, tmp_path):
    needs("torch")
    from nanospeech_torch.finetune import __main__ as finetune
    from nanospeech_torch.finetune import start

    folder, _ = two_voices
    command = ["--model", str(folder), "--data", "d", "--voice", "anna", "--output", "o"]

    def settle(run: str, *more: str) -> None:
        args = finetune.build_parser().parse_args([*command, *more])
        release, own = open_release(folder), start.Start(None, None, {})
        if args.from_voice:
            own = start.own_weights(args.from_voice, release)
            release = dataclasses.replace(release, voice=own.weights)
        start.settle(args, release, own, tmp_path / run)

    for _ in range(2):
        settle("plain")
        settle("from", "--from-voice", "other")
    # a voice of the folder is replaced, as by the run itself when it was done
    path = folder / "voices" / "other.safetensors"
    tensors = load_file(path)
    save_file({name: t + 0.01 for name, t in tensors.items()}, path)
    settle("plain")
    with pytest.raises(InputError, match=r"holds another run: weights '.*', now '.*'; choose"):
        settle("from", "--from-voice", "other")
    save_file({}, folder / MODEL)
    with pytest.raises(InputError, match="holds another run: weights"):
        settle("plain")
