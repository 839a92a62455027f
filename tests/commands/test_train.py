"""nanospeech train: a run from one YAML file, its changes and its errors."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
import yaml

from convert.__main__ import main as convert
from nanospeech.errors import InputError
from nanospeech.release.folder import READING
from nanospeech.release.tensors import read_tensors
from nanospeech.text.tokenizer import phoneme_vocab
from nanospeech_torch.train.__main__ import main
from nanospeech_torch.train.config import read_run
from nanospeech_torch.train.initial import load_objective
from nanospeech_torch.train.run import build_objective, build_tokenizer, going_on, start_from
from nanospeech_torch.train.scale.parallel import ParallelConfig
from tests.convert.test_belonging import doubled
from tests.training import write_shards

CONFIG = """
model: {model}
run_dir: {run}
data: {{shards: [{shards}/*.tar], tokenizer: phonemes, batch_size: 2, max_duration: 200}}
dit: {{dim: 64, depth: 1, heads: 1, text_dim: 32, conv_layers: 1, text_upsampling: aligned,
      patch_size: 2}}
duration: {{dim: 64, depth: 1, heads: 1, text_dim: 32}}
optimizer: {{lr: 1.0e-3}}
train: {{log_every: 1}}
total_steps: 2
warmup_steps: 1
"""


@pytest.fixture
def config(tmp_path):
    write_shards(tmp_path, 1)
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(model="speech", run=tmp_path / "run", shards=tmp_path))
    return path


@pytest.mark.parametrize("model", ["speech", "duration"])
def test_runs_and_goes_on_with_more_steps(config, tmp_path, capsys, model):
    assert main(["--config", str(config), "--set", f"model={model}"]) == 0
    for _ in range(2):  # the second time there is nothing to do
        assert main(["--config", str(config), "--set", f"model={model}", "total_steps=3"]) == 0
    said = capsys.readouterr().out
    assert "at step 2" in said and "1 shard\n" in said
    last = tmp_path / "run" / "step_00000003"
    assert said.count(f"3 of 3 steps are done: {last}\n") == 2
    assert last.with_suffix(".pt").is_file()


def test_a_job_that_slurm_starts_again_goes_on(config, tmp_path, capsys, monkeypatch):
    call = ["--config", str(config), "--resume", "never", "--set", "model=duration"]
    for steps in (1, 2):  # by hand, both start afresh
        assert main([*call, f"total_steps={steps}"]) == 0
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert main([*call, "total_steps=3"]) == 0
    said = capsys.readouterr().out
    assert said.count("starting a new run") == 2 and "at step 2" in said
    assert "--resume never was for its first start" in said
    other = str(tmp_path / "another" / "step_00000001")  # until there is a checkpoint of its own
    assert going_on(other, tmp_path / "run") == "auto"
    assert going_on(other, tmp_path / "new") == other


def test_a_fresh_run_can_start_from_a_release_folder(config, tmp_path, golden, capsys):
    folder = tmp_path / "release"
    vocoder = str(golden / "vocos_pytorch_model.bin")
    assert main(["--config", str(config)]) == 0
    assert convert([str(tmp_path / "run"), "--vocoder", vocoder, "--output", str(folder)]) == 0
    again = [f"initial={folder}", f"run_dir={tmp_path / 'again'}"]
    run = read_run(str(config), again)
    objective = build_objective(run, build_tokenizer(run.data))
    saved = read_tensors(folder / "model.safetensors")
    for name, tensor in objective.transformer.state_dict().items():
        assert (tensor.numpy() == saved[f"transformer.{name}"]).all()
    assert main(["--config", str(config), "--set", *again]) == 0
    other = [again[0], f"run_dir={tmp_path / 'other'}", "dit.heads=2"]
    assert main(["--config", str(config), "--set", *other]) == 2
    assert f"{folder} has dit.heads 1, not 2: set the run's to it\n" in capsys.readouterr().err
    (tmp_path / "abc.txt").write_text("\n".join(" abc"))
    other[2] = f"data.vocab={tmp_path / 'abc.txt'}"
    assert main(["--config", str(config), "--set", "data.tokenizer=chars", *other]) == 2
    theirs, _, own = capsys.readouterr().err.partition("; the run has one of ")
    assert f"{folder} has another vocabulary, of " in theirs and own.startswith("4 tokens with 'a'")
    assert "4 tokens" not in theirs
    tokenizer, other[2] = build_tokenizer(run.data), "audio.prompt_rms=0.2"
    with pytest.raises(InputError, match=r"has audio\.prompt_rms None, not 0\.2: set the run's"):
        start_from(read_run(str(config), other), tokenizer)
    for split in ParallelConfig(shard=2), ParallelConfig(tensor=2):
        with pytest.raises(InputError, match="whole on every process"):
            start_from(dataclasses.replace(run, parallel=split), tokenizer)


def test_one_file_needs_no_list(config):
    run = read_run(str(config), ["data.shards=a/*.tar", "log.held_out=b/*.tar"])
    assert run.data.shards == ("a/*.tar",) and run.log.held_out == ("b/*.tar",)


def test_a_tokenizer_that_is_misspelt_is_told_from_a_missing_vocabulary(config, capsys):
    command = ["--config", str(config), "--set", "data.tokenizer=phoneme"]
    for dry in ([], ["--dry-run"]):
        assert main([*command, *dry]) == 2
        said = capsys.readouterr().err
        assert "data.tokenizer is 'phoneme'; choose from chars, bytes, phonemes, " in said


def test_a_run_can_leave_what_reads_texts_as_it_is(config, tmp_path, golden, capsys):
    folder, vocoder = tmp_path / "release", str(golden / "vocos_pytorch_model.bin")
    assert main(["--config", str(config)]) == 0
    make = ["--vocoder", vocoder, "--dtype", "float32"]
    assert convert([str(tmp_path / "run"), "--output", str(folder), *make]) == 0
    further = [f"initial={folder}", f"run_dir={tmp_path / 'further'}", "total_steps=4"]
    assert main(["--config", str(config), "--set", *further, "keep_reading=true"]) == 0
    command = [str(tmp_path / "further"), "--output", str(tmp_path / "new"), "--weights", "raw"]
    assert convert([*command, *make]) == 0
    before, after = (read_tensors(f / "model.safetensors") for f in (folder, tmp_path / "new"))
    same = {name for name, tensor in before.items() if (tensor == after[name]).all()}
    reading = {name for name in before if name.startswith(READING)}
    assert len(reading) > 10 and reading <= same
    moved = {n for n in before if "attn" in n or "proj_out" in n}
    assert moved and not moved & same
    alone = ["keep_reading=true", f"run_dir={tmp_path / 'alone'}"]
    assert main(["--config", str(config), "--set", *alone]) == 2
    assert "set initial=FOLDER" in capsys.readouterr().err


def test_a_voice_of_one_speaker_starts_a_run_of_several(config, tmp_path, golden):
    folder, vocoder = tmp_path / "release", str(golden / "vocos_pytorch_model.bin")
    assert main(["--config", str(config)]) == 0
    assert convert([str(tmp_path / "run"), "--vocoder", vocoder, "--output", str(folder)]) == 0
    several = ["dit.aligner_dim=8", f"initial={folder}", f"run_dir={tmp_path / 'several'}"]
    run = read_run(str(config), several)
    wider = build_objective(run, build_tokenizer(run.data)).transformer
    plain = load_objective(folder).transformer
    text, speaker = torch.tensor([[3, 1, 2]]), torch.randn(1, 100)
    assert wider.config.aligner_dim == 8 and not plain.config.aligner_dim
    assert torch.equal(wider.token_means(text, speaker), plain.token_means(text, speaker))
    saved = {name: t for name, t in wider.state_dict().items() if name in plain.state_dict()}
    assert all(torch.equal(t, saved[name]) for name, t in plain.state_dict().items())
    assert main(["--config", str(config), "--set", *several]) == 0


def test_a_run_can_start_from_a_smaller_model_which_it_does_not_change(config, tmp_path, golden):
    folder, vocoder = tmp_path / "release", str(golden / "vocos_pytorch_model.bin")
    assert main(["--config", str(config), "--set", "dit.depth=2"]) == 0
    assert convert([str(tmp_path / "run"), "--vocoder", vocoder, "--output", str(folder)]) == 0
    larger = ["dit.depth=5", "dit.prompt_dim=12", f"initial={folder}"]
    run = read_run(str(config), [*larger, f"run_dir={tmp_path / 'larger'}"])
    grown = build_objective(run, build_tokenizer(run.data)).transformer
    plain = load_objective(folder).transformer
    assert grown.config.depth == 5 and grown.config.prompt_dim == 12
    blocks = [dict(b.named_parameters()) for b in grown.transformer_blocks]
    for old, place in zip(plain.transformer_blocks, (0, 2)):  # evenly between the new ones
        assert all(torch.equal(p, blocks[place][n]) for n, p in old.named_parameters())
    torch.manual_seed(0)
    x, cond, text = torch.randn(2, 24, 100), torch.randn(2, 24, 100), torch.randn(2, 12, 32)
    time, lens = torch.rand(2), torch.tensor([24, 17])
    with torch.no_grad():
        wanted, got = (m.eval()(x, cond, text, time, lens) for m in (plain, grown))
    assert wanted.abs().max() > 0 and torch.allclose(got, wanted, atol=1e-6)
    assert main(["--config", str(config), "--set", *larger, f"run_dir={tmp_path / 'larger'}"]) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("sped=3", "unknown keys ['sped']"),
        ("speed.compile=fast", "error: speed.compile 'fast'; choose from off, default"),
        ("train.schedule=flat", "error: train: schedule 'flat'; choose from linear"),
        ("dit.widht=3", "unknown keys ['widht'] in dit"),
        ("data.batch_size=many", "data.batch_size should be int"),
        ("train.keep=true", "train.keep should be int"),
        ("data.shards=[/nowhere/*.tar]", "; nanospeech prepare shards makes some"),
        (
            "model=voice",
            "choose from speech, echo, distilled, understood, listener, duration, vocoder",
        ),
        ("data.tokenizer=chars", "vocab.txt"),
        ("total_steps", "should be KEY=VALUE"),
        ("initial=nowhere", "nowhere"),
        ("log.held_out=no.tar", "log.held_out: no shards match 'no.tar'"),
    ],
)
def test_mistakes_end_in_one_line_and_code_2(config, capsys, change, said):
    assert main(["--config", str(config), "--set", change]) == 2
    err = capsys.readouterr().err
    assert said in err and err.startswith("error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["train.seed=5e9"], "seed is 5000000000, should be less than 4294967296"),
        (["optimizer.muon_lr=0.01"], "muon_lr is 0.01, which is for optimizer.name=muon"),
        (["train.ema_decay=0.9", "train.ema_horizon=99"], "the first replaces the second"),
        (["model=vocoder", "log.held_out=a.tar"], "log.held_out is not for vocoders"),
        (["model=duration", "loss.pair=0.0"], "loss cannot be set where model is duration"),
        (["model=duration", "dit.dim=64"], "dit.dim=64: model is duration, which does not use dit"),
        (["model=distilled", "teacher=a"], "dit, data.tokenizer cannot be set where"),
        (["model=listener", "teacher=a", "audio.n_mels=80"], "dit, audio, data.tokenizer cannot"),
        (
            ["model=understood", "teacher=a", "understood.listener=b", "loss.model_guidance=0.5"],
            "data.tokenizer, loss.model_guidance cannot be set where model is understood",
        ),
    ],
)
def test_settings_that_would_be_ignored_are_refused(config, changes, said):
    with pytest.raises(InputError, match=said):
        read_run(str(config), changes)


@pytest.mark.parametrize("threads", ["0", "-1"])
def test_fewer_threads_than_one_are_refused(config, capsys, threads):
    assert main(["--config", str(config), "--threads", threads]) == 2
    assert f"--threads is {threads}; choose at least 1" in capsys.readouterr().err


def test_the_greatest_seed_has_draws_in_every_step(config, tmp_path):
    greatest = ["train.seed=4294967295", "model=duration", "total_steps=1"]
    assert main(["--config", str(config), "--set", *greatest]) == 0


def test_a_vocabulary_that_is_still_to_be_made_is_told_with_what_makes_it(config, capsys):
    chars = ["data.tokenizer=chars", "data.vocab=gone.txt"]
    assert main(["--config", str(config), "--set", *chars]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: there is no file gone.txt; nanospeech prepare vocab makes it")


def test_keys_of_older_versions_are_read(config, tmp_path):
    old = {
        "log": {"heldout": ["a.tar"], "heldout_every": 7},
        "vocoder_loss": {"made": 0.5, "every": 4.0, "given": 0.25, "advance": 3.0, "delay": 2.0}
        | {"judge_rate": 0.3, "judged": 5, "judge_channels": 6},
        "vocoder": {"rounds": 4},
    }
    for section, values in old.items():
        named = [f"{section}.{key}={value}" for key, value in values.items()]
        of = "vocoder" if section.startswith("vocoder") else "speech"
        by_change = getattr(read_run(config, [f"model={of}", *named]), section)
        path = tmp_path / "old.yaml"
        path.write_text(config.read_text() + yaml.safe_dump({section: values}))
        assert getattr(read_run(path), section) == by_change
        assert by_change != getattr(read_run(config), section)
        plain = [f"{value!r}" for value in dataclasses.asdict(by_change).values()]
        assert all(repr(tuple(v) if isinstance(v, list) else v) in plain for v in values.values())
    newer = read_run(
        path, ["model=vocoder", "vocoder.griffin_lim_iters=2"]
    )  # over a file with the old name
    assert newer.vocoder.griffin_lim_iters == 2


def test_changes_are_read_as_yaml_and_exponents_as_numbers(config):
    changed = read_run(config, ["optimizer.lr=2e-4", "train.schedule=cosine"])
    assert changed.optimizer.lr == 2e-4 and changed.train.schedule == "cosine"
    assert repr(read_run(config, ["total_steps=1e6"]).total_steps) == "1000000"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# für Anna\n", r"run.yaml is not UTF-8 text: .*save it as UTF-8"),
        ("data: shards/*.tar\n", "data should be a mapping, got str"),
        ("speed: default\n", "speed should be a mapping, got str"),
        ("total_steps: 1.5e0\n", "total_steps should be int, got 1.5"),
        ("data: [shards/*.tar\n", "run.yaml is not YAML in line 2, column 1: expected"),
        ("data: &a {shards: *a}\n", r"run.yaml: its aliases \(\*NAME\) stand for more than"),
        (doubled(40), "its aliases .* more than 100,000"),  # which had no end
        ("data: " + "[" * 3000, "run.yaml is nested too deeply"),
        (None, r"run.yaml: No such file or directory; name a YAML file, or a recipe of"),
    ],
)
def test_a_file_that_is_no_run_says_why(tmp_path, text, said):
    if text is not None:
        (tmp_path / "run.yaml").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=said):
        read_run(tmp_path / "run.yaml")


@pytest.mark.parametrize(
    ("preset", "millions"),
    [
        ("default_voice", 10.5),
        ("82M", 82.3),
        ("duration", 22.5),
        ("f5", 335.9),
        ("800M", 803.9),
        ("3B", 2995.9),
        ("8B", 7658.0),
        ("vocoder", 2.96),
        ("vocoder_gan", 2.8),
    ],
)
def test_presets_tell_their_sizes_without_allocating_them(preset, millions, capsys):
    assert main(["--config", f"nanospeech/configs/{preset}.yaml", "--dry-run"]) == 0
    counts = [
        int(line.split()[-1].replace(",", ""))
        for line in capsys.readouterr().out.splitlines()
        if line.split()[:1] in (["all"], ["vocoder"])
    ]
    assert counts[0] / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("model", ["speech", "duration"])
def test_a_dry_run_counts_the_weights_that_the_run_has(config, tmp_path, capsys, model):
    vocab = tmp_path / "vocab.txt"
    chars = f"data.vocab={vocab}", "data.tokenizer=chars", f"model={model}"

    def said(*changes: str) -> str:
        assert main(["--config", str(config), "--set", *changes, "--dry-run"]) == 0
        return capsys.readouterr().out

    assert "for 256 tokens (assumed" in said(*chars)  # it is made from recordings that come later
    vocab.write_text("\n".join("abcdefg"))
    for changes, tokens in (chars, 7), ((f"model={model}",), len(phoneme_vocab())):
        run = read_run(config, list(changes))
        objective = build_objective(run, build_tokenizer(run.data))
        page = said(*changes)
        count = sum(p.numel() for p in objective.parameters())
        assert f"for {tokens} tokens (in use)" in page
        assert re.search(rf"^  all +{count:,}$", page, re.M)


def test_yaml_booleans_that_are_meant_as_words_are_taken_as_such(config):
    changed = read_run(config, ["mixed_precision=no", "speed.compile=off"])
    assert changed.mixed_precision == "no" and changed.speed.compile == "off"


def test_every_setting_is_explained(capsys):
    assert main(["--explain"]) == 0
    out = capsys.readouterr().out
    assert "total_steps: 100000" in out and "checkpoint_interval: 0  # " in out
    settings = [line for line in out.splitlines() if line and not line.endswith(":")]
    assert [line for line in settings if "  # " not in line] == []
