"""Finetuning: old tokens keep their rows, adapters merge exactly, a folder becomes a voice."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from convert import convert, find_checkpoint, read_source
from nanospeech import load_engine
from nanospeech.audio import wave as audio
from nanospeech.audio.recording import RUMBLES, rumble
from nanospeech.cli import read_fields
from nanospeech.commands import main
from nanospeech.config import PostfilterConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.evaluate.prompts import degraded
from nanospeech.release.folder import MODEL, READING, open_release
from nanospeech.release.voice_weights import is_thin
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech_torch.adapters import (
    LoraConfig,
    add_lora,
    blend,
    merge_lora,
    train_last_rows,
    trainable,
)
from nanospeech_torch.finetune import __main__ as finetune
from nanospeech_torch.finetune import recordings as finetune_data
from nanospeech_torch.finetune.options import Options
from nanospeech_torch.finetune.trainer import FinetuneTrainer
from nanospeech_torch.train.initial import (
    EMBEDDING,
    duration_state,
    extend_vocab,
    float_weights,
    load_objective,
)
from nanospeech_torch.train.objectives.flow import Nanospeech
from tests.echo import tiny
from tests.test_locks import holder
from tests.training import CPU, SHARD, samples

LORA = LoraConfig(rank=4, alpha=6.0)


@pytest.fixture(scope="module")
def phonemes(make_release, tmp_path_factory) -> Path:
    """A random aligned release that reads phonemes."""
    fields = {"text_num_embeds": len(phoneme_vocab())}
    release = make_release(text_upsampling="aligned", patch_size=2, **fields)
    folder = tmp_path_factory.mktemp("phonemes") / "base"
    shutil.copytree(release, folder)
    Tokenizer("phonemes", phoneme_vocab()).save(folder / "vocab.txt")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tokenizer": "phonemes"}))
    return folder


def vocabulary(objective: Nanospeech) -> Tokenizer:
    """Its tokenizer, which could be a function."""
    assert isinstance(objective.tokenizer, Tokenizer)
    return objective.tokenizer


def velocity(objective, seed: int = 0) -> torch.Tensor:
    """What a model computes for a fixed input."""
    g = torch.Generator().manual_seed(seed)
    dit = objective.transformer.eval()
    mel = torch.randn(2, 24, 100, generator=g)
    with torch.no_grad():
        text = dit.embed_text(torch.arange(20).reshape(2, 10) % 11, 24, None)
        return dit(mel, mel * 0.5, text, torch.tensor([0.2, 0.7]))


def test_a_release_opens_as_what_an_engine_computes(tiny_release, engine_of):
    objective = load_objective(tiny_release)
    rng = np.random.default_rng(0)
    mel, text = rng.standard_normal((1, 30, 100), np.float32), np.arange(12)[None]
    engine = engine_of(tiny_release, "torch")
    got = engine.velocity(mel, mel * 0, text, np.array([0.5], np.float32))
    with torch.no_grad():
        dit = objective.transformer.eval()
        states = dit.embed_text(torch.from_numpy(text), 30, None)
        want = dit(torch.from_numpy(mel), torch.from_numpy(mel * 0), states, torch.tensor([0.5]))
    mean, std = objective.audio.mel_mean, objective.audio.mel_std
    assert (mean, std) == (0, 1)
    assert np.allclose(got, want.numpy(), atol=1e-5)
    assert all(p.requires_grad and p.dtype == torch.float32 for p in objective.parameters())


@pytest.mark.parametrize("kind", ["chars", "phonemes", "without config.json"])
def test_new_tokens_come_behind_the_old_which_stay(tiny_release, phonemes, tmp_path, kind):
    base = phonemes if kind == "phonemes" else tiny_release
    if kind == "without config.json":
        base = shutil.copytree(tiny_release, tmp_path / "bare")
        (base / "config.json").unlink()
    old, new = load_objective(base), load_objective(base, ["ß", "ə", "a", "ß"])
    known = len(vocabulary(old))
    assert vocabulary(new).vocab == [*vocabulary(old).vocab, "ß", "ə"]
    was, now = old.state_dict()[EMBEDDING], new.state_dict()[EMBEDDING]
    assert torch.equal(now[: known + 1], was[: known + 1]) and len(now) == known + 3
    spread = was[1:].std(0).mean()
    assert not torch.equal(now[-1], now[-2])
    assert (now[-2:] - was[1 : known + 1].mean(0)).abs().mean() < 0.2 * spread
    text = "hello there"
    assert (vocabulary(new).encode(text) == vocabulary(old).encode(text)).all()
    assert vocabulary(new).encode("ßə").tolist() == [known, known + 1]
    if kind != "phonemes":
        assert torch.equal(velocity(old), velocity(new))


def test_the_duration_model_follows_the_vocabulary(tiny_release, tmp_path):
    release = open_release(tiny_release)
    objective = load_objective(release, ["ß"])
    torch.save(duration_state(release, objective), tmp_path / "duration.pt")
    state = {"model_state_dict": objective.state_dict(), "vocab": vocabulary(objective).vocab}
    torch.save(state, tmp_path / "model.pt")
    made = convert(tmp_path / "model.pt", tmp_path / "out", duration=tmp_path / "duration.pt")
    assert made.duration is not None and made.duration.text_num_embeds == len(release.tokenizer) + 1
    assert open_release(tmp_path / "out").tokenizer.vocab[-1] == "ß"


def test_what_cannot_be_a_token_is_refused():
    for token in ("", "a\nb"):
        with pytest.raises(InputError, match="cannot be a token"):
            extend_vocab(Tokenizer("chars", ["a"]), [token])
    with pytest.raises(InputError, match="bytes"):
        extend_vocab(Tokenizer("bytes", []), ["ß"])


def test_adapters_start_as_nothing_and_merge_into_what_they_do(tiny_release):
    base = load_objective(tiny_release)
    names, before = set(base.state_dict()), velocity(base)
    adapted = add_lora(base, LORA)
    assert torch.equal(velocity(adapted), before)
    for name, p in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.1)
    after = velocity(adapted)
    assert (after - before).abs().max() > 0.01
    merged = merge_lora(adapted.state_dict(), LORA)
    assert set(merged) == names
    plain = load_objective(tiny_release)
    plain.load_state_dict(merged)
    assert torch.allclose(velocity(plain), after, atol=1e-5)


def test_only_adapters_the_aligner_and_new_rows_are_trained(phonemes):
    objective = add_lora(load_objective(phonemes, ["ß"]), LORA, new_tokens=1)
    names = [n for n, p in objective.named_parameters() if p.requires_grad]
    assert all("lora_" in n or "aligner" in n or n == EMBEDDING for n in names)
    assert len([n for n in names if "lora_A" in n]) == 6 * 2  # targets x blocks
    objective.state_dict(keep_vars=True)[EMBEDDING].sum().backward()
    grad = objective.state_dict(keep_vars=True)[EMBEDDING].grad
    assert grad[-1].all() and not grad[:-1].any()
    table = torch.nn.Parameter(torch.zeros(5, 3))
    train_last_rows(table, 2)
    (3 * table).sum().backward()
    assert table.grad is not None and (table.grad[-2:] == 3).all() and not table.grad[:-2].any()


def test_thin_tensors_are_trained_where_that_is_asked_for(phonemes):
    config = dataclasses.replace(LORA, thin=True)
    objective = add_lora(load_objective(phonemes), config)
    trained = {
        n.replace(".base_layer", "") for n, p in objective.named_parameters() if p.requires_grad
    }
    tensors = load_objective(phonemes).state_dict()
    assert {n for n, t in tensors.items() if is_thin(t)} <= trained
    assert {n for n in trained & tensors.keys() if "aligner" not in n} == {
        n for n, t in tensors.items() if is_thin(t) and "aligner" not in n
    }


@pytest.mark.parametrize(
    "fields, match",
    [({"targets": "to_q,nowhere"}, "nowhere"), ({"whole": "head"}, "no part"), ({"rank": 0}, "1")],
)
def test_adapters_that_fit_nothing_are_refused(tiny_release, fields, match):
    with pytest.raises(InputError, match=match):
        add_lora(load_objective(tiny_release), LoraConfig(**fields))


def lora_run(base: Path, run: Path, steps: int, config: LoraConfig | None = LORA):
    """A short run with adapters; the same weights at every call."""
    torch.manual_seed(0)
    objective = load_objective(base)
    if config:
        add_lora(objective, config)
    optimizer = torch.optim.AdamW(trainable(objective), 1e-2, weight_decay=0.0)
    settings = {"log_every": 1, "ema_decay": 0.5, "schedule": "constant"}
    trainer = FinetuneTrainer(objective, optimizer, 1, CPU, run, lora=config, **settings)
    trainer.train(samples(), steps, 2, max_duration=200)
    return objective


def test_a_run_with_adapters_goes_on_and_converts_to_plain_weights(tiny_aligned, tmp_path, capsys):
    whole = lora_run(tiny_aligned, tmp_path / "whole", 4)
    lora_run(tiny_aligned, tmp_path / "parts", 2)
    parts = lora_run(tiny_aligned, tmp_path / "parts", 4)
    assert "at step 2" in capsys.readouterr().out
    for (name, a), b in zip(whole.named_parameters(), parts.parameters()):
        assert torch.allclose(a, b, atol=1e-6), name
    base = load_file(tiny_aligned / "model.safetensors")
    for weights in ("ema", "raw"):
        output = tmp_path / weights
        convert(tmp_path / "whole", output, weights=weights, dtype="float32")
        made = load_file(output / "model.safetensors")
        assert made.keys() == base.keys()
        moved = {n for n in base if not torch.allclose(made[n], base[n], atol=1e-6)}
        assert {n for n in moved if "aligner" not in n} and EMBEDDING not in moved
        assert all("attn.to_" in n or ".ff." in n or "aligner" in n for n in moved)
    raw = load_file(tmp_path / "raw" / "model.safetensors")
    merged = merge_lora(whole.state_dict(), LORA)
    assert all(torch.allclose(raw[n], merged[n], atol=1e-6) for n in raw)
    assert load_engine(tmp_path / "ema", backend="torch").config.dit.text_upsampling == "aligned"


def test_a_blend_leads_from_the_model_to_what_it_became(tiny_release):
    base, tuned = (load_objective(tiny_release, extra).state_dict() for extra in ([], ["ß"]))
    tuned = {n: t + 1 for n, t in tuned.items()}
    for strength in (0.0, 0.25, 1.0):
        mixed = blend(base, tuned, strength)
        assert mixed.keys() == base.keys()
        for name, t in mixed.items():
            known = base[name]
            assert torch.allclose(t[: len(known)], known + strength, atol=1e-6)
            assert torch.equal(t[len(known) :], tuned[name][len(known) :])


def test_adapters_without_their_scale_are_refused(tiny_aligned, tmp_path):
    objective = add_lora(load_objective(tiny_aligned), LORA)
    torch.save({"model_state_dict": objective.state_dict()}, tmp_path / "step_1.pt")
    with pytest.raises(CheckpointError, match="rank and scale"):
        read_source(tmp_path / "step_1.pt")
    state = objective.state_dict()
    with pytest.raises(CheckpointError, match=r"are \(4, \d+\) .* rank 8, .*should be \(8, \d+\)"):
        merge_lora(state, LoraConfig(rank=8))
    down = next(name for name in state if ".lora_A." in name)
    up = down.replace(".lora_A.", ".lora_B.")
    scalar, row = torch.zeros(()), {down: state[down][:, :1], up: state[up][:1]}  # it would spread
    for odd in ({down: scalar}, {up: scalar}, {up: state[up][:, 1:]}, {up: state[up][1:]}, row):
        with pytest.raises(CheckpointError, match=r"lora_A.* should be"):
            merge_lora({**state, **odd}, LORA)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(CheckpointError, match=r"no step_"):
        find_checkpoint(tmp_path / "nothing")


def voice_folder(folder: Path) -> Path:
    """The fixture's recordings as X.wav with X.txt, and one without words."""
    folder.mkdir()
    for sample in samples():
        wave = audio.read(sample["mp3"]["bytes"])
        audio.write(folder / f"{sample['__key__']}.wav", np.pad(0.2 * wave, 12_000))
        (folder / f"{sample['__key__']}.txt").write_text(sample["json"]["text"] + " ə")
    audio.write(folder / "mute.wav", wave)
    return folder


def command(base: Path, folder: Path, data: Path, *options: str) -> list[str]:
    names = ["--model", base, "--data", data, "--voice", "kathleen", "--run", folder / "run"]
    small = ["--steps", "2", "--batch-size", "2", "--precision", "no", "--threads", "1"]
    return [str(p) for p in [*names, "--output", folder / "out", *small, "--text", "Hi.", *options]]


@pytest.mark.parametrize("how", ["full", "lora"])
def test_a_folder_of_recordings_becomes_a_voice(phonemes, tmp_path, capsys, how):
    data = voice_folder(tmp_path / "data")
    options = ["--lora", "4", "--extend-vocab"] if how == "lora" else ["--rehearse", str(SHARD)]
    if how == "full":  # its prompt is chosen by hand, and rumbles
        chosen = data / f"{samples()[0]['__key__']}.wav"
        low = tmp_path / "low.wav"
        audio.write(low, degraded(audio.read(chosen), "rumble"))
        shutil.copy(chosen.with_suffix(".txt"), low.with_suffix(".txt"))
        options += ["--prompt", str(low)]
    base = tmp_path / "base"
    shutil.copytree(phonemes, base)
    imitates = how == "lora"
    settings = {
        "imitates": imitates, "temperature": 0.4, "leading_pause": 0.1, "cfg_strength": 2.0,
        "cfg_rescale": 0.7,
        "steps": 5, "postfilter": PostfilterConfig(sharpen=0.6), "licence": "cc-by-nc-4.0",
    }  # fmt: skip
    dataclasses.replace(open_release(base).config, **settings).save(base / "config.json")
    call = command(base, tmp_path, data, "--license", "CC0 1.0", *options)
    assert finetune.main(call) == 0
    out, err = capsys.readouterr()
    assert "left out 1: no transcript" in err
    assert "weights are trained, in bf16\n" in out or "weights are trained, in float32\n" in out
    assert ("'ə' (4 times)" in err) == (how == "full")
    assert ("1 new tokens: ə" in out) == (how == "lora")
    release = open_release(tmp_path / "out")
    assert (release.tokenizer.vocab[-1] == "ə") == (how == "lora")
    assert release.config.default_voice == "kathleen"
    # as the model that it began with
    assert {name: getattr(release.config, name) for name in settings} == settings
    voices = tmp_path / "out" / "voices"
    assert sorted(p.name for p in voices.iterdir()) == [
        f"kathleen{suffix}" for suffix in (".flac", ".license.txt", ".txt")
    ]
    assert "CC0 1.0" in (voices / "kathleen.license.txt").read_text()
    assert rumble(audio.read(voices / "kathleen.flac")) < RUMBLES
    assert len(audio.read(tmp_path / "out" / "sample.wav")) > 2400
    assert finetune.main([*call, "--steps", "3"]) == 0  # the last --steps counts
    assert "at step 2" in capsys.readouterr().out
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert finetune.main([*call, "--steps", "3", "--lr", "0.1"]) == 0
    assert "has its 3 steps: nothing is trained" in capsys.readouterr().out
    assert finetune.main(call) == 2  # of 2 steps
    assert "trained for 3 steps, and --steps is 2: fewer take another" in capsys.readouterr().err
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == weights
    assert finetune.main([*call, "--minutes", "1"]) == 2
    assert "minutes None, now 1.0" in capsys.readouterr().err


def test_an_imitator_learns_to_follow_a_prompt_and_reads_as_before(phonemes, tmp_path, capsys):
    alone, base = (Path(shutil.copytree(phonemes, tmp_path / name)) for name in ("own", "base"))
    for folder, values in (alone, {"imitates": True}), (base, {"licence": "cc-by-nc-4.0"}):
        config = dataclasses.replace(open_release(folder).config, **values)
        config.save(folder / "config.json")
    both = tmp_path / "both"
    convert(base, both, imitator=alone, dtype="float32")
    call = command(both, tmp_path, voice_folder(tmp_path / "data"), "--lr", "0.01")
    assert finetune.main([*call, "--held-back", "0"]) == 0
    assert "starting from the model that speaks after recordings" in capsys.readouterr().out
    release, made = open_release(both).imitator(), open_release(tmp_path / "out")
    assert made.config.licence == "cc-by-nc-4.0"  # its vocoder is the whole release's
    assert main(["publish", "card", str(tmp_path / "out")]) == 0  # what is asked for stays
    card = (tmp_path / "out" / "README.md").read_text()
    assert '/imitator"' in card and "of its data ask for" in card
    (meta,) = (tmp_path / "run").glob("step_*/meta.json")
    longest = json.loads(meta.read_text())["run"]["data"]["longest"]
    assert longest > 12 * made.config.audio.frame_rate  # two recordings may be a pair
    args = finetune.build_parser().parse_args(call)
    objective = finetune.build(args, release, ["Hi."])[0]
    assert objective.loss.pair == 0.8 and not objective.loss.warp
    before, after = (float_weights(r, MODEL) for r in (release, made))
    moved = {n for n in before if (before[n] - after[n]).abs().max() > 2e-3}
    assert "transformer.proj_out.weight" in moved
    assert not [n for n in moved if n.startswith(READING)]
    given = read_fields(args, Options)
    assert [given.filled_in(args, one).strength for one in (True, False)] == [1.0, 0.5]
    # new tokens cannot be read as before
    args = finetune.build_parser().parse_args([*call, "--extend-vocab"])
    learnt = finetune.build(args, release, ["ə"])[0].transformer.text_embed
    assert all(p.requires_grad for p in learnt.parameters())


def test_recordings_are_trimmed_levelled_and_set_aside(phonemes, tmp_path):
    config = open_release(phonemes).config
    found, _ = finetune_data.find_samples([voice_folder(tmp_path / "data")])
    finetune_data.write_voice(found, tmp_path / "out", config, 0.05, "kathleen")
    voice, rest = (
        finetune_data.read_recordings([tmp_path / "out" / f"{n}-000000.tar"])
        for n in ("voice", "rest")
    )
    assert len(voice) + len(rest) == 4 and voice and rest
    assert not {r.key for r in voice} & {r.key for r in rest}
    for r in voice + rest:
        start, stop = audio.loud_span(wave := r.wave())
        assert start <= 0.1 * 24_000 and len(wave) - stop <= 0.1 * 24_000
        assert audio.rms(wave) > 0.08 or np.abs(wave).max() > 0.9


def test_an_offset_hides_no_silence_of_a_recording(phonemes, tmp_path):
    config, seconds = open_release(phonemes).config, []
    data = voice_folder(tmp_path / "data")
    for offset in 0.0, 0.05:
        for path in data.glob("*.wav"):
            audio.write(path, audio.read(path) + np.float32(offset))
        found, _ = finetune_data.find_samples([data])
        finetune_data.write_voice(found, tmp_path / "out", config, None, "kathleen")
        voice = finetune_data.read_recordings([tmp_path / "out" / "voice-000000.tar"])
        assert all(abs(r.wave().mean()) < 0.01 for r in voice)
        seconds.append([r.seconds for r in voice])
    assert np.allclose(*seconds, atol=0.05)


def test_an_epoch_has_all_of_the_voice_and_the_share_of_others():
    def some(name: str, count: int) -> list:
        source = finetune_data.Source(SHARD)
        one = finetune_data.Recording
        return [one(f"{name}{i}", source, "text", 2.0, name) for i in range(count)]

    data = finetune_data.Recordings(some("a", 10), some("b", 50), 0.5)
    first, again = data.chosen(), data.chosen()
    assert first == again and sum(r.speaker == "b" for r in first) == 10
    assert {r.key for r in first if r.speaker == "a"} == {f"a{i}" for i in range(10)}
    data.set_epoch(1)
    assert data.chosen() != first
    same = finetune_data.Recordings(some("a", 3), some("a", 3), 0.5)
    assert len({r.key for r in same.chosen()}) == 6


BAD = ["nothing", "no model", "both", "bad voice", "long", "latents", "file", "model", "run"]


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_in_one_line_and_code_2(tiny_release, tmp_path, capsys, case):
    empty = tmp_path / "empty"
    empty.mkdir()
    call = {
        "nothing": command(tiny_release, tmp_path, empty),
        "no model": command(tmp_path / "none" / "x" / "y", tmp_path, empty),
        "both": command(tiny_release, tmp_path, empty, "--lora", "0", "--lr", "2"),
        "bad voice": command(tiny_release, tmp_path, empty, "--voice", "../up"),
        "long": command(tiny_release, tmp_path, empty, "--voice", "x" * 250),  # of a file's name
        "latents": command(tmp_path / "echo", tmp_path, empty),
        "file": command(tiny_release, tmp_path, empty, "--output", __file__),
        "model": command(tiny_release, tmp_path, empty, "--output", tiny_release),
        "run": command(tiny_release, tmp_path, empty, "--output", tmp_path / "run"),
    }[case]
    if case == "latents":
        (tmp_path / "echo").mkdir()
        tiny.write(tmp_path / "echo", tiny.ECHO, tiny.seeded(tiny.network_shapes(tiny.ECHO)))
    assert finetune.main(call) == 2
    err = capsys.readouterr().err
    assert ("holds an EchoDiT, which finetune does not train" in err) is (case == "latents")
    assert ("error: --output " in err) is (case in ("file", "model", "run"))
    assert ("should be named by letters" in err) is (case in ("bad voice", "long"))
    assert err.startswith("error: ") and err.count("\n") == 1


def test_a_voice_is_not_trained_twice_at_once(tiny_release, tmp_path, capsys):
    with holder(tmp_path / "run") as other:
        assert finetune.main(command(tiny_release, tmp_path, tmp_path / "data")) == 2
    told = capsys.readouterr().err
    assert f"in use by process {other.pid}" in told and "another --run" in told


@pytest.mark.parametrize(
    "flag, value, told",
    [
        ("--minutes", "0", "--minutes is 0"),
        ("--steps", "0", "--steps is 0"),
        ("--batch-frames", "0", "--batch-frames is 0"),
        ("--warmup", "-5", "--warmup is -5"),
        ("--threads", "-1", "--threads is -1"),
        ("--threads", "0", "--threads is 0"),
        ("--seed", "4294967296", "--seed is 4294967296"),
    ],
)
def test_numbers_that_leave_nothing_to_train_on_are_refused(
    phonemes, tmp_path, capsys, flag, value, told
):
    data = voice_folder(tmp_path / "data")
    assert finetune.main(command(phonemes, tmp_path, data, flag, value)) == 2
    assert told in capsys.readouterr().err


def test_a_prompt_that_cannot_be_one_is_refused_before_training(phonemes, tmp_path, capsys):
    data = voice_folder(tmp_path / "data")
    prompt = data / f"{samples()[0]['__key__']}.wav"
    long, latin = tmp_path / "long.wav", "Groß geschrieben, für alle.".encode("latin-1")
    audio.write(long, np.resize(audio.read(prompt), 70 * 24_000))
    for path in (long.with_suffix(".TXT"), tmp_path / "none.txt"):
        path.write_text("These are the words.")
    calls = {"none": tmp_path / "none.wav", "long": long, "words": prompt, "terms": prompt}
    said = {
        "none": "there is no file", "long": "long.wav cannot be the prompt: the reference is",
        "words": "save it as UTF-8", "terms": ".license.txt: ",
    }  # fmt: skip
    words = prompt.with_suffix(".txt").read_bytes()
    for case, path in calls.items():
        prompt.with_suffix(".txt").write_bytes(latin if case == "words" else words)
        if case == "terms":
            prompt.with_suffix(".license.txt").write_bytes(latin)
        options = "--prompt", str(path), "--rehearse", str(SHARD)
        assert finetune.main(command(phonemes, tmp_path, data, *options)) == 2
        assert said[case] in capsys.readouterr().err
        assert not list((tmp_path / "run").glob("step_*"))
    # the next command may have other options
    args = finetune.build_parser().parse_args(command(phonemes, tmp_path, data))
    found = finetune.gather(args, 12.0, open_release(phonemes), tmp_path / "run")
    assert found["voice"] and "others" not in found


def test_recordings_that_are_all_held_back_are_no_missing_ones(phonemes, tmp_path):
    config = open_release(phonemes).config
    found, _ = finetune_data.find_samples([voice_folder(tmp_path / "data")])
    sentences = [s for s in found if len(s.text.split()) > 3]
    with pytest.raises(InputError, match="all recordings are held back"):
        finetune_data.write_voice(sentences[:1], tmp_path / "out", config, None, None, 0, 1)
