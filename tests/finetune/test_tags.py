"""Tags: breaths are found by level, learned as tokens, spoken, and refused where not known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from nanospeech import InputError, SampleOptions, Speaker, load_engine
from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.commands import main
from nanospeech.engine.upsampling import searched_durations
from nanospeech.prepare.tags import find_gaps, write_tags
from nanospeech.release.folder import MODEL, open_release
from nanospeech.release.voices import find_voice
from nanospeech.speech import durations
from nanospeech.text.sentences import encode, prepare
from nanospeech.text.tags import as_tag, check_tags
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech_torch.finetune import __main__ as finetune
from nanospeech_torch.train.initial import EMBEDDING, load_objective
from tests.training import samples

RATE = 24_000


def breathing(seconds: float = 0.5, level: float = 0.003) -> np.ndarray:
    """A gap with a breath in its middle: noise between two silences."""
    rng = np.random.default_rng(0)
    wave = 1e-4 * rng.standard_normal(int(seconds * RATE))
    middle = slice(len(wave) // 4, 3 * len(wave) // 4)
    wave[middle] = level * rng.standard_normal(len(wave[middle]))
    return wave.astype(np.float32)


@pytest.fixture
def recordings(tmp_path) -> Path:
    """Sentences of the fixture, two to a recording, with a breath or silence between them."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    clips = [(audio.read(s["mp3"]["bytes"]), s["json"]["text"]) for s in samples()]
    gaps = [breathing(), breathing(), breathing(level=1e-4)]
    for n, ((first, said), (second, more), gap) in enumerate(zip(clips, clips[1:], gaps)):
        wave = np.concatenate([audio.trim(first), gap, audio.trim(second)])
        audio.write(folder / f"{n}.flac", wave)
        (folder / f"{n}.txt").write_text(f"{said} {more}")
    return folder


@pytest.fixture
def base(make_release, tmp_path) -> Path:
    """A random aligned release that reads phonemes."""
    fields = {"text_num_embeds": len(phoneme_vocab())}
    folder = shutil.copytree(
        make_release(text_upsampling="aligned", patch_size=2, **fields), tmp_path / "base"
    )
    Tokenizer("phonemes", phoneme_vocab()).save(folder / "vocab.txt")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tokenizer": "phonemes"}))
    return folder


def test_a_gap_is_found_where_it_is_and_a_breath_in_it():
    t = np.arange(RATE) / RATE
    speech = (0.2 * np.sin(2 * np.pi * 200 * t)).astype(np.float32)
    wave = np.concatenate([breathing(), speech, breathing(), speech, breathing(level=1e-4), speech])
    first, second = find_gaps(wave)  # that before the speech is none
    assert first.breath and not second.breath
    assert first.start == pytest.approx(1.5, abs=0.03)
    assert second.stop == pytest.approx(3.5, abs=0.03)
    assert not find_gaps(wave, seconds=0.6) and not find_gaps(wave[:0]) and not find_gaps(0 * wave)
    text = "one two three, four five six. seven eight nine"
    gaps = find_gaps(wave[RATE // 2 :])
    assert write_tags(text, gaps, gaps, 4.0, "<x>").count("<x>") == 2
    wanted = "one two three, <x> four five six. seven eight nine"
    assert write_tags(text, gaps, gaps[:1], 4.0, "<x>") == wanted


def test_a_breath_of_the_recordings_becomes_a_token_that_is_spoken(
    recordings, base, tmp_path, capsys
):
    tagged = tmp_path / "tagged"
    assert main(["prepare", "tags", str(recordings), "--out", str(tagged), "--tag", "breath"]) == 0
    assert "2 <breath> in 2 of 3 recordings" in capsys.readouterr().out
    first, second = sorted(tagged.glob("*.txt"))
    for path in (first, second):
        before, _, behind = path.read_text().partition(" <breath> ")
        assert before.endswith(".") and behind
    small = ["--steps", "2", "--batch-size", "2", "--precision", "no", "--threads", "1"]
    call = ["--model", base, "--data", tagged, "--voice", "anna", "--run", tmp_path / "run", *small]
    call = [str(p) for p in [*call, "--output", tmp_path / "out", "--text", "Hi. <breath> You."]]
    assert finetune.main(call) == 2
    # it is said before anything is trained, and the same run can be begun in another way
    assert "--tags breath" in capsys.readouterr().err
    assert finetune.main([*call, "--tags", "breath", "sigh"]) == 2
    assert "no transcript has <sigh>" in capsys.readouterr().err
    assert finetune.main([*call, "--tags", "breath"]) == 0
    assert "1 new tokens: <breath>" in capsys.readouterr().out
    old, new = open_release(base), open_release(tmp_path / "out")
    assert new.tokenizer.vocab == [*old.tokenizer.vocab, "<breath>"]
    rows, more = old.weights(MODEL)[EMBEDDING], new.weights(MODEL)[EMBEDDING]
    assert len(more) == 1 + len(new.tokenizer) and len(more) > 1 + len(old.tokenizer)
    assert rows.shape[1] == more.shape[1]
    text = "At 9:30 <breath> it rained."
    speaker = Speaker(load_engine(tmp_path / "out", backend="torch"), seed=0)
    speaker.options = SampleOptions(steps=1)
    (chunk,) = speaker.chunks(text)
    assert "nine thirty <breath> it" in chunk
    tokens = speaker.chunk(chunk, 0).tokens
    assert list(tokens).count(len(old.tokenizer)) == 1
    assert len(speaker.speak(text).wave) > 0
    with pytest.raises(InputError, match=r"cannot say <laugh>: it knows <breath>"):
        speaker.chunks("Ha! <laugh>")


def test_a_tag_that_a_model_lacks_is_refused_by_name(base):
    tone = 0.1 * np.sin(np.arange(RATE, dtype=np.float32))
    engine = load_engine(base, backend="torch")
    speaker = Speaker(engine, ref_audio=tone, ref_text="Hello.", seed=0)
    with pytest.raises(InputError, match=r"cannot say <laughs>, <sigh>: it knows no tags"):
        speaker.chunks("Oh <laughs> no <sigh>.")
    (result,) = speaker.speak_many(["<breath> Hi."], raise_errors=False)
    assert isinstance(result, InputError)
    assert speaker.chunks("If a <b> c, or 3 <5.")  # signs
    check_tags("<laugh>", "bytes", {})  # reads every sign


@pytest.mark.parametrize("kind, vocab", [
    ("phonemes", phoneme_vocab()), ("chars", [*" abcdefghijklmnopqrstuvwxyz.,!'"]),
    ("pinyin", [*" abcdefghijklmnopqrstuvwxyz.,!'", "ni3"]),
])  # fmt: skip
def test_tags_stay_whole_in_every_vocabulary(kind, vocab):
    tags = [as_tag(name) for name in ("laugh", "<breath>", "sigh", "clear throat")]
    tokenizer = Tokenizer(kind, [*vocab, *tags])
    text = f"oh {tags[0]} no, {tags[1]}{tags[2]} it is 5 {tags[3]}!"
    ids = encode(prepare(text, tokenizer), tokenizer).tolist()
    assert [i - len(vocab) for i in ids if i >= len(vocab)] == [0, 1, 2, 3]
    check_tags(text, kind, tokenizer.ids)
    for wrong in ("", "a>b", "two\nlines"):
        with pytest.raises(InputError, match="cannot be a tag"):
            as_tag(wrong)


@pytest.mark.parametrize("kind", ["phonemes", "chars", "pinyin"])
def test_a_tag_stands_for_the_spaces_and_the_comma_beside_it(kind):
    vocab = phoneme_vocab() if kind == "phonemes" else [*" abcdefghijklmnopqrstuvwxyz.,!'"]
    tokenizer = Tokenizer(kind, [*vocab, "<pause>", "<laugh>"])
    plain = Tokenizer(kind, vocab)
    word = plain.tokens("no")
    for text in ("no, <pause> no", "no <pause>no", "no<pause> , no"):
        assert tokenizer.tokens(text) == [*word, "<pause>", *word]
    assert tokenizer.tokens("no. <pause> <laugh>, no") == [*word, ".", "<pause>", "<laugh>", *word]
    assert tokenizer.tokens("no, no") == plain.tokens("no, no")
    found = tokenizer.places("no, <pause> no")
    assert [token for token, *_ in found] == tokenizer.tokens("no, <pause> no")
    assert found[len(word)] == ("<pause>", 4, 11)


def test_a_pause_takes_the_silence_before_anything_is_trained():
    release = open_release(None)
    objective = load_objective(release, ["<pause>", "<laugh>", "<sigh>"])
    rows = objective.state_dict()[EMBEDDING][1:]
    space, mean = rows[release.tokenizer.ids[" "]], rows[:-3].mean(0)
    for row, start in zip(rows[-3:], (space, mean, space)):
        assert (row - start).abs().mean() < 0.2 * rows.std(0).mean()
    voice = find_voice("kathleen", release.folder)
    said = audio.trim(audio.read(voice.audio, RATE))
    silence = 1e-4 * np.random.default_rng(0).standard_normal(RATE // 2).astype(np.float32)
    mel = log_mel(np.concatenate([said, silence, said]), release.config.audio)
    text = prepare(f"{voice.text} <pause> {voice.text}", objective.tokenizer)
    ids = objective.tokenizer.encode(" ".join(text.split()))
    normal = (mel - release.config.audio.mel_mean) / release.config.audio.mel_std
    with torch.no_grad():
        tokens, speaker = torch.tensor(ids)[None], torch.tensor(normal.mean(0))[None].float()
        means = objective.transformer.token_means(tokens, speaker)[0].numpy()
    p = release.config.dit.patch_size
    each = searched_durations(normal, means, p) * p / release.config.audio.frame_rate
    (at,) = np.flatnonzero(ids == len(release.tokenizer))
    assert each[at] == pytest.approx(0.5, abs=0.15)
    begin = len(said) / RATE
    assert each[:at].sum() == pytest.approx(begin, abs=0.12)


def test_a_tag_is_as_long_as_the_tokens_say_and_no_pause_is_set_beside_it(
    tiny_aligned, tiny_release, tmp_path, monkeypatch
):
    monkeypatch.setattr(durations, "SLOW_START", -9.0)  # random weights speak too fast
    folder = shutil.copytree(tiny_aligned, tmp_path / "tagged")
    shutil.copy(tiny_release / "duration.safetensors", folder)
    configs = [json.loads((f / "config.json").read_text()) for f in (folder, tiny_release)]
    config = {**configs[0], "duration": configs[1]["duration"]}
    (folder / "config.json").write_text(json.dumps(config))
    vocab = (folder / "vocab.txt").read_text().split("\n")
    (folder / "vocab.txt").write_text("\n".join([*vocab[:-1], "<breath>"]))
    speaker = Speaker(load_engine(folder, backend="torch"), "tone", seed=0, duration="both")
    own = Speaker(speaker.engine, "tone", seed=0, duration="tokens")
    text = "hello there. <breath> it is late, and so"
    chunk = speaker.chunk(text, 0)
    assert chunk.frames == own.chunk(text, 0).frames
    bare = text.replace("<breath> ", "")
    assert speaker.chunk(bare, 0).frames != own.chunk(bare, 0).frames
    assert [m.kind for m in chunk.marks] == ["clause"]
    assert [m.kind for m in speaker.chunk(bare, 0).marks] == ["sentence", "clause"]
