"""Durations: padding, what the duration model is trained on, who is asked, how it is measured."""

import csv
import dataclasses
import io
import json
import shutil
import tarfile
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from nanospeech import Speaker, load_engine
from nanospeech.config import DurationConfig, ModelConfig, SampleOptions
from nanospeech.engine.upsampling import PACE, total_seconds
from nanospeech.errors import CheckpointError, InputError
from nanospeech.generate import main as generate
from nanospeech.release.prompt import make_prompt
from nanospeech.release.user_voices import save_voice
from nanospeech.release.voices import find_voice
from nanospeech.speech.durations import SLOW_START
from tests.conftest import needs, tone

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

from nanospeech.evaluate import durations  # noqa: E402
from nanospeech_torch.duration import DurationHead, DurationTransformer  # noqa: E402
from nanospeech_torch.train.data.batch import LossConfig  # noqa: E402
from nanospeech_torch.train.data.batches import BatchPlan  # noqa: E402
from nanospeech_torch.train.data.durations import DurationBatches  # noqa: E402
from nanospeech_torch.train.data.heard import quiet_start, stretched  # noqa: E402
from nanospeech_torch.train.objectives.duration import DurationPredictor  # noqa: E402
from tests.training import samples, trainer  # noqa: E402

SIZES = {"dim": 32, "depth": 2, "heads": 2, "dim_head": 16, "text_dim": 32, "conv_layers": 1}
TOKENS = {**SIZES, "pooling": "tokens", "prompt": "statistics", "text_masking": True, "pace": 0.5}
QUICK = SampleOptions(steps=1, cfg_strength=0)
BACKENDS = ["torch", "mlx", "onnx"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    needs(request.param)
    return request.param


@pytest.fixture(scope="module")
def with_both(tiny_aligned, tmp_path_factory):
    """An aligned model's folder with a duration model in it."""
    folder = shutil.copytree(tiny_aligned, tmp_path_factory.mktemp("both") / "both")
    config = ModelConfig.load(folder / "config.json")
    sizes = {**TOKENS, "text_num_embeds": config.dit.text_num_embeds, "edge": " "}
    torch.manual_seed(0)
    head = DurationHead(DurationTransformer(**sizes))
    for p in head.parameters():
        p.data += 0.05 * torch.randn_like(p)
    save_file(head.state_dict(), folder / "duration.safetensors")
    dataclasses.replace(config, duration=DurationConfig(**sizes)).save(folder / "config.json")
    return folder


# The model.


def test_padding_changes_no_duration(with_both, engine_of, arrays, backend):
    engine = engine_of(with_both, backend)
    mel, ids = arrays["mel"], engine.tokenizer.encode("hello there, general.")
    cond = np.zeros((2, mel.shape[1] + 37, 100), np.float32)
    cond[0, : mel.shape[1]], cond[1, :33] = mel[0], mel[0, :33]
    text = np.full((2, 90), -1, np.int64)  # more places than the mel has
    text[0, : len(ids)], text[1, :9] = ids, ids[:9]
    prompts, known = np.array([mel.shape[1], 33]), np.array([6, 4])
    cond[1, 33:] = 7.0  # what lies behind a prompt is no part of it
    both = engine.duration(cond, text, lens_B=prompts, prompt_tokens_B=known)
    for i, (n, t) in enumerate(zip(prompts, (len(ids), 9))):
        one = engine.duration(
            cond[i : i + 1, :n], text[i : i + 1, :t], prompt_tokens_B=known[i : i + 1]
        )
        assert one[0] == pytest.approx(both[i], rel=1e-4)


def test_the_backends_predict_the_same(with_both, engine_of, arrays):
    for backend in BACKENDS:
        needs(backend)
    ids = engine_of(with_both, "torch").tokenizer.encode("hello there, general.")[None]
    args = {"prompt_tokens_B": np.array([6])}
    a, *others = (engine_of(with_both, e).duration(arrays["mel"], ids, **args) for e in BACKENDS)
    assert np.allclose(others, a, rtol=1e-4)


@pytest.mark.parametrize("config", [SIZES, TOKENS], ids=["mean", "tokens"])
def test_the_prompt_is_heard_and_all_the_text_is_read(config):
    torch.manual_seed(0)
    head = DurationHead(DurationTransformer(**config, text_num_embeds=30)).eval()
    mel, text = torch.randn(1, 60, 100), torch.randint(0, 30, (1, 80))
    with torch.no_grad():
        seconds = head(mel, text)
        assert not torch.allclose(head(1.5 * mel, text), seconds)
        for place in (0, 79):
            other = text.clone()
            other[0, place] = (text[0, place] + 1) % 30
            assert not torch.equal(head(mel, other), seconds)


def test_a_slow_prompt_stretches_the_text_by_a_share_of_its_pace():
    each = np.array([0.1, 0.1, 0.2, 0.4])
    assert total_seconds(each, 2, 0.2, 0.7) == pytest.approx(0.8)  # as predicted
    slow = [total_seconds(each, 2, 0.4, pace) - 0.4 for pace in (0, 0.5, 1)]
    assert slow == pytest.approx([0.6, 0.6 * 2**0.5, 1.2])
    assert total_seconds(each, -1, 0.2, 1) == pytest.approx(0.8)
    assert total_seconds(each, -1, 3.0, 1) == 3.0 and 0 < PACE < 1
    assert total_seconds(each, 0, 3.0, 1) == pytest.approx(3.8)  # behind a prompt without words
    silent = np.array([0.0, 0.4])  # a prompt that is predicted to last no time
    assert total_seconds(silent, 1, 0.2, 0.5) == pytest.approx(0.2 + 0.4 * 200**0.5)


def test_options_that_make_no_sense_are_refused():
    options: list[dict[str, Any]] = [{"pooling": "max"}, {"pace": 0.5}, {"prompt": "mel"}]
    for wrong in options:
        with pytest.raises(InputError, match=next(iter(wrong))):
            DurationConfig(**wrong)


# What it is trained on.


class Plain:
    """Character ids of any text, and back."""

    def __call__(self, texts):
        return np.array([[ord(c) for c in text] for text in texts])


def made(clips, **plan):
    plan = BatchPlan(4, 10_000, 1000, **plan)
    batches = DurationBatches(clips, Plain(), plan, loss=LossConfig(pair=1.0), edge=" ")
    loaded = next(iter(batches))
    return loaded.batch, loaded.texts


def clip(key: str, text: str, seconds: float, lead: float, speaker: str = "a") -> dict:
    """A clip with silence before its tone."""
    wave = np.concatenate([np.zeros(int(lead * 24_000), "f4"), tone(seconds)])
    data = io.BytesIO()
    sf.write(data, wave, 24_000, format="WAV", subtype="FLOAT")
    meta = {"text": text, "duration": len(wave) / 24_000, "speaker": speaker}
    return {"__key__": key, "json": meta, "wav": data.getvalue()}


def test_training_sees_what_inference_gives(tiny_aligned, engine_of, monkeypatch):
    """The prompt is another clip, whole; the text is its words and the new ones, as make_prompt
    reads them; and the predicted part begins at the new clip's first sound."""
    monkeypatch.setattr("nanospeech_torch.train.data.durations.STRETCH", 0.0)
    # which clip of a pair is the prompt is drawn by the second one's key
    clips = [clip("x", "one two", 2.0, 0.1), clip("y2", "Three four.", 1.5, 0.3)]
    batch, texts = made(clips)
    assert texts == ["one two Three four."]
    said = "".join(map(chr, batch.text[0]))
    assert said == " one two. Three four. " and said[: batch.known[0]] == " one two. "
    engine = engine_of(tiny_aligned, "torch")
    prompt = make_prompt(tone(2.0), "one two", engine.config, engine.tokenizer)
    assert len(prompt.tokens) == batch.known[0]
    first, lead = int(2.1 * 93.75) + 1, 0.3 * 93.75
    assert batch.prompt[0] == pytest.approx(first + lead, abs=3)
    assert batch.lens[0] - batch.prompt[0] == pytest.approx(1.5 * 93.75, abs=4)
    assert batch.mel.shape[1] == batch.prompt.max()  # nothing of what is to be said
    assert batch.mel[0, first : int(batch.prompt[0])].max() < batch.mel[0].max() - 4


def test_a_clip_without_a_partner_is_predicted_from_its_beginning():
    batch, _ = made([clip("x", "one two", 2.0, 0.1)])
    assert batch.known.tolist() == [0] and 0 < batch.prompt[0] < batch.lens[0]


def test_few_shapes_are_made_where_they_are_asked_for():
    clips = [clip("x", "one two", 2.0, 0.1), clip("y", "three", 1.5, 0.3)]
    batch, _ = made(clips, carry=True, buckets=2)
    assert batch.mel.shape[1] in (500, 1000)
    assert batch.text.shape[1] % 16 == 0


def test_a_stretched_mel_is_the_same_sound_for_longer():
    mel = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float16)
    for pace in (0.8, 1.2, 1.0):
        longer = stretched(mel, pace)
        assert longer.shape == (round(40 * pace), 5) and longer.dtype == mel.dtype
        assert np.array_equal(longer[[0, -1]], mel[[0, -1]])
    assert len(stretched(mel[:1], 1.2)) == 1
    assert quiet_start(np.concatenate([np.full((9, 5), -11.0), np.zeros((5, 5))])) == 9


def test_token_durations_are_learnt_from_lengths_alone(tmp_path):
    torch.manual_seed(0)
    network = DurationTransformer(**TOKENS, text_num_embeds=128, dropout=0.0)
    network.config = dataclasses.replace(network.config, edge=" ")
    run = trainer(tmp_path, DurationPredictor(network, Plain()), lr=5e-3)
    run.train(samples(), 40, batch_size=2, max_duration=400, save_step=100)
    with open(tmp_path / "log.csv", newline="") as f:
        errors = [float(row["duration"]) for row in csv.DictReader(f)]
    assert np.mean(errors[-10:]) < 0.12 < errors[0]


# Who is asked.


def test_a_folders_duration_model_speaks_with_the_token_durations(
    with_both, tiny_aligned, engine_of, backend, monkeypatch
):
    monkeypatch.setattr("nanospeech.speech.durations.SLOW_START", -9.0)
    engine = engine_of(with_both, backend)
    text = "hello there, general. how are you?"

    def seconds(how, folder=with_both):
        speaker = Speaker(engine_of(folder, backend), options=QUICK, duration=how, seed=0)
        return speaker.speak(text).seconds

    model, tokens, rule = seconds("model"), seconds("tokens"), seconds("rule")
    assert len({model, tokens, rule}) == 3
    assert seconds(None) == seconds("both") == pytest.approx((model * tokens) ** 0.5, abs=0.05)
    assert tokens == seconds("tokens", tiny_aligned) == seconds("model", tiny_aligned)
    slow = Speaker(engine, options=QUICK, duration="model", seed=0, speed=0.5).speak(text).seconds
    assert slow == pytest.approx(2 * model, rel=0.05)
    asked = Speaker(engine, options=QUICK, seed=0).speak(text, seconds=2.5).seconds
    assert asked == pytest.approx(2.5, abs=0.05)


def test_a_single_word_has_a_minimal_duration(tiny_aligned, engine_of, backend):
    """With any source of durations, as isolated words are slower than in a sentence."""
    for how in ("tokens", "rule"):
        speaker = Speaker(engine_of(tiny_aligned, backend), duration=how, seed=0)
        alone = speaker.frames("yes.", speaker.engine.tokenizer.encode("yes."))
        assert alone / 93.75 >= SLOW_START + 2 / speaker.prompt.rate - 0.01


@pytest.mark.parametrize("by_model, by_tokens, wanted", [(0.5, 0.7, 0.7), (1.0, 1.4, 1.4**0.5)])
def test_a_text_under_a_second_gets_the_longer_time(
    with_both, engine_of, backend, monkeypatch, by_model, by_tokens, wanted
):
    engine = engine_of(with_both, backend)

    def duration(mel, tokens, *, own, **rest):
        return np.array([mel.shape[1] / 93.75 + (by_tokens if own else by_model)])

    monkeypatch.setattr(engine, "duration", duration)
    speaker = Speaker(engine, duration="both", seed=0)
    text = "x" * round(0.1 * speaker.prompt.rate)  # the rule says 0.1 s, and 0.5 at the least
    tokens = speaker.engine.tokenizer.encode(text)
    assert speaker.frames(text, tokens) / 93.75 == pytest.approx(wanted, abs=0.03)


def test_the_rule_is_there_beside_any_model(tiny_release, engine_of, backend):
    engine = engine_of(tiny_release, backend)
    speaker = Speaker(engine, options=QUICK, duration="rule", seed=0)
    said = 40 / speaker.prompt.rate  # seconds of 40 bytes
    assert speaker.speak("x" * 40).seconds == pytest.approx(said, abs=0.05)
    with pytest.raises(CheckpointError, match="not an aligned one; choose duration rule"):
        Speaker(engine, duration="tokens")
    with pytest.raises(CheckpointError, match="for this voice: choose duration model or rule"):
        Speaker(engine, duration="both")
    with pytest.raises(InputError, match="choose from both, model, tokens, rule"):
        Speaker(engine, duration="bytes")


def test_asking_a_folder_without_durations_says_what_to_do(tiny_release, tmp_path, capsys):
    folder = shutil.copytree(tiny_release, tmp_path / "mute")
    (folder / "duration.safetensors").unlink()
    config = ModelConfig.load(folder / "config.json")
    flags = ["--model", str(folder), "--text", "hello.", "--output", str(tmp_path / "a.wav")]
    dataclasses.replace(config, duration=DurationConfig(**SIZES)).save(folder / "config.json")
    assert generate(flags) == 2 and generate([*flags, "--duration", "rule"]) == 0
    assert "duration.safetensors, which its config.json describes" in capsys.readouterr().err
    dataclasses.replace(config, duration=None).save(folder / "config.json")
    assert generate([*flags, "--duration", "model"]) == 2
    assert "choose duration rule, or train a duration model" in capsys.readouterr().err
    assert generate([*flags, "--duration", "bytes"]) == 2
    assert "choose from both, model, tokens, rule, or give seconds" in capsys.readouterr().err
    path = shard(tmp_path / "a.tar", [clip("z", "alone.", 2.0, 0.1)])
    pace = ["--model", str(folder), "--shards", path, "--own", "*=tone", "--set-pace"]
    assert durations.main([*pace, "--backend", "torch", "--out", str(tmp_path)]) == 2
    assert "predicts no durations" in capsys.readouterr().err
    assert generate([*flags, "--duration", "both"]) == 2  # "model" would be refused as well
    assert "no aligned model for this voice: choose duration rule" in capsys.readouterr().err
    assert generate([*flags, "--duration", "rule"]) == 0
    assert generate([*flags, "--duration", "1.5"]) == 0
    assert sf.info(tmp_path / "a.wav").duration == pytest.approx(1.5, abs=0.05)


# How it is measured.


def shard(path, clips):
    with tarfile.open(path, "w") as tar:
        for sample in clips:
            parts = {"json": json.dumps(sample["json"]).encode(), "wav": sample["wav"]}
            for kind, data in parts.items():
                info = tarfile.TarInfo(f"{sample['__key__']}.{kind}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return str(path)


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Without the picture of a report, which another test looks at."""
    monkeypatch.setattr("nanospeech.evaluate.durations_report.picture", lambda *_: None)


def test_each_source_of_durations_is_compared_with_the_recording(with_both, tmp_path, capsys):
    clips = [clip(f"k{i}", "hello there, general.", 2 + i / 2, 0.2) for i in range(4)]
    path = shard(tmp_path / "a.tar", [*clips, clip("z", "alone.", 2.0, 0.1, "b")])
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- durations -->\nold\n<!-- /durations -->\nafter\n")
    out = tmp_path / "out"
    flags = ["--shards", path, "--model", str(with_both), "--backend", "torch", "--out", str(out)]
    pytest.importorskip("matplotlib")
    assert durations.main([*flags, "--held-out", "0", "--doc", str(page)]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document == json.loads((out / "durations.json").read_text())
    assert document["without_prompt"] == ["z"] and document["groups"]["all"]["clips"] == 4
    with (out / "durations.csv").open(newline="") as f:
        rows = list(csv.DictReader(f))
    assert {r["key"] for r in rows} == {"k0", "k1", "k2", "k3"}
    for row in rows:
        assert float(row["seconds"]) == pytest.approx(2 + int(row["key"][1]) / 2, abs=0.02)
        assert row["prompt"] != row["key"]
    errors = [abs(float(r["rule"]) / float(r["seconds"]) - 1) for r in rows]
    rule = document["groups"]["all"]["rule"]
    assert rule["mean"] == pytest.approx(np.mean(errors), abs=1e-3)
    assert rule["worst"] == pytest.approx(max(errors), abs=1e-3)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "bytes rule" in text and "token durations" in text and "duration model" in text
    assert (out / "durations.png").stat().st_size > 5000


@pytest.mark.parametrize("name", ["user/tone", "default/robin"])
def test_a_voice_that_is_not_the_models_is_the_prompt(undrawn, with_both, tmp_path, name):
    """That of the model's own of its name was, or none was found."""
    save_voice("tone", tone(4.0), "hello, all of them.", {})
    clips = [clip(f"k{i}", "hello there, general kenobi.", 2 + i / 2, 0.2) for i in range(2)]
    flags = ["--shards", shard(tmp_path / "a.tar", clips), "--model", str(with_both)]
    flags += ["--backend", "torch", "--out", str(tmp_path / "out"), "--held-out", "0"]
    assert durations.main([*flags, "--own", f"*={name}"]) == 0
    with (tmp_path / "out/durations.csv").open(newline="") as f:
        rows = list(csv.DictReader(f))
    rate = Speaker(load_engine(with_both, "torch"), name, seed=0).prompt.rate
    seconds = len("hello there, general kenobi.") / rate
    assert [r["prompt"] for r in rows] == [name] * 2
    assert [float(r["rule"]) for r in rows] == pytest.approx([seconds] * 2, rel=0.1)


def test_a_speaker_without_clips_is_given_no_voice(with_both, tmp_path, capsys):
    """Clips of who is misspelt were measured after each other, as if nothing had been asked."""
    clips = [clip(f"k{i}", "hello there, general.", 2 + i / 2, 0.2) for i in range(2)]
    path, out = shard(tmp_path / "a.tar", clips), tmp_path / "out"
    flags = ["--shards", path, "--model", str(with_both), "--backend", "torch", "--out", str(out)]
    assert durations.main([*flags, "--held-out", "0", "--own", "ana=tone"]) == 2
    told = capsys.readouterr().err
    assert "--own names 'ana', of whom there is no clip; the speakers of the clips are: 'a'" in told
    assert not (out / "durations.json").exists()


@pytest.mark.parametrize("own", [[], ["--own", "*=tone"]])
def test_clips_that_no_one_hears_or_says_are_named_and_not_counted(
    undrawn, with_both, tmp_path, own
):
    """A silent one would have been as long as its file, and the prompt of others."""
    clips = [clip(f"k{i}", "hello there, general kenobi.", 2 + i / 2, 0.2) for i in range(4)]
    silent = io.BytesIO()
    sf.write(silent, np.zeros(72_000), 24_000, format="WAV")
    clips += [clips[0] | {"__key__": "silent", "wav": silent.getvalue()}]
    clips += [clips[0] | {"__key__": "broken", "wav": b"no audio"}, clip("dots", "...", 1.5, 0.1)]
    path, out = shard(tmp_path / "a.tar", clips), tmp_path / "out"
    flags = ["--shards", path, "--model", str(with_both), "--backend", "torch", "--out", str(out)]
    assert durations.main([*flags, "--held-out", "0", *own]) == 0
    document = json.loads((out / "durations.json").read_text())
    with (out / "durations.csv").open(newline="") as f:
        assert {r["key"] for r in csv.DictReader(f)} == {"k0", "k1", "k2", "k3"}
    said = sorted(line.split(" ")[0].strip(":") for line in document["unusable"])
    assert said == ["broken", "dots", "silent"]


@pytest.mark.parametrize("absurd", [True, False])
def test_predictions_that_the_rule_stands_in_for_are_told(
    undrawn, with_both, tmp_path, capsys, absurd
):
    clips = [clip(f"k{i}", "hello there, general.", 2 + i / 2, 0.2) for i in range(4)]
    path, folder = shard(tmp_path / "a.tar", clips), tmp_path / "model"
    shutil.copytree(with_both, folder)
    head = load_file(folder / "duration.safetensors")
    last = max(n for n in head if n.endswith(".bias") and head[n].numel() == 1)
    head[last] -= 30 if absurd else 0  # as if all lasted nothing
    save_file(head, folder / "duration.safetensors")
    flags = ["--shards", path, "--model", str(folder), "--backend", "torch", "--held-out", "0"]
    assert durations.main([*flags, "--out", str(tmp_path / "out")]) == 0
    err = capsys.readouterr().err
    with (tmp_path / "out/durations.csv").open(newline="") as f:
        rows = list(csv.DictReader(f))
    assert ("duration model: 4 of 4 predictions are the bytes rule's" in err) is absurd
    assert all((r["model"] == r["rule"]) is absurd for r in rows)


def test_wrong_wishes_end_with_a_line(with_both, tmp_path, capsys):
    flags = ["--model", str(with_both), "--backend", "torch", "--out", str(tmp_path)]
    assert durations.main(["--shards", str(tmp_path / "no*.tar"), *flags]) == 2
    assert "no shards at" in capsys.readouterr().err
    path = shard(tmp_path / "a.tar", [clip("z", "alone.", 2.0, 0.1)])
    assert durations.main(["--shards", path, "--held-out", "0", *flags]) == 2
    assert "could be its prompt" in capsys.readouterr().err
    assert durations.main(["--shards", path, "--set-pace", *flags]) == 2
    assert "--set-pace needs --own" in capsys.readouterr().err
    for more in (["--prompts", "0"], ["--held-out", "-1"]):
        assert durations.main(["--shards", path, *flags, *more]) == 2
        assert f"{more[0]} is {more[1]}" in capsys.readouterr().err
    assert durations.main(["--shards", path, *flags, "--doc", str(tmp_path / "none.md")]) == 2
    assert "none.md should hold the lines" in capsys.readouterr().err


def test_clips_of_nobody_are_told_to_be_taken_for_one_persons(undrawn, with_both, tmp_path, capsys):
    clips = [clip(f"k{i}", "hello there, general kenobi.", 2.0 + i, 0.1, "") for i in range(3)]
    flags = ["--shards", shard(tmp_path / "a.tar", clips), "--model", str(with_both)]
    flags += ["--backend", "torch", "--out", str(tmp_path / "out"), "--held-out", "0"]
    assert durations.main(flags) == 0
    assert "warning: 3 clips name no speaker" in capsys.readouterr().err
    assert durations.main([*flags, "--own", "*=tone"]) == 0
    assert "no speaker" not in capsys.readouterr().err


def test_a_pace_is_written_for_the_models_own_voices_alone(undrawn, with_both, tmp_path, capsys):
    """A folder without voices borrows those that ship, whose paces are of the model that ships."""
    folder = shutil.copytree(with_both, tmp_path / "mute")
    shutil.rmtree(folder / "voices")
    ships = find_voice("kathleen", folder).audio.with_suffix(".json")
    before = ships.read_bytes()
    path = shard(tmp_path / "a.tar", [clip("z", "hello there, general.", 2.0, 0.1)])
    flags = ["--model", str(folder), "--backend", "torch", "--out", str(tmp_path / "out")]
    flags += ["--shards", path, "--held-out", "0", "--own", "*=kathleen"]
    assert durations.main([*flags, "--set-pace"]) == 2
    assert "has no voice 'kathleen' of its own" in capsys.readouterr().err
    assert ships.read_bytes() == before and durations.main(flags) == 0


def test_lengths_of_voices_that_another_network_speaks_are_not_told(tmp_path, capsys):
    clips = [clip(f"k{i}", "hello there, general.", 2 + i / 2, 0.2) for i in range(2)]
    path = shard(tmp_path / "a.tar", clips)
    flags = ["--shards", path, "--held-out", "0", "--out", str(tmp_path)]
    for own, who in (([], "recordings are"), (["--own", "*=robin"], "robin is")):
        assert durations.main([*flags, *own]) == 2
        assert f"{who} imitated by another model" in capsys.readouterr().err


def test_what_another_recogniser_or_of_another_sound_was_heard_does_not_count(
    tmp_path, monkeypatch
):
    calls = []

    def whisper(name: str):
        def listen(wave: np.ndarray, language: str) -> str:
            calls.append((name, len(wave)))
            return "good morning to you" if name == "large" else "goo mourning two ewe"

        return listen

    monkeypatch.setattr(durations, "whisper", whisper)
    wave = np.ones(24_000, np.float32)
    clips = [durations.Clip("one", "good morning to you", "", wave)]
    for _ in range(2):
        assert durations.audible(clips, "tiny", tmp_path) == ([], ["one"])
    assert durations.audible(clips, "large", tmp_path) == (clips, [])
    longer = [durations.Clip("one", "good evening", "", wave[:-1])]
    assert durations.audible(longer, "large", tmp_path)[1] == ["one"]
    assert calls == [("tiny", 24_000), ("large", 24_000), ("large", 23_999)]
