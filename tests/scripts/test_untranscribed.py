"""People whose words nobody wrote down: their clips, which training reads, and what is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from nanospeech.audio import wave as audio
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.corpus.layouts import find
from nanospeech.corpus.mp3 import decode
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from scripts.recipes.untranscribed import CLIP, DEBIAN, LONGEST, clips_of, main, usable
from tests.train.test_data import TOKENIZER, until

SPEECH = sorted((Path(__file__).parents[1] / "fixtures/ljspeech/wavs").glob("*.wav"))


@pytest.fixture
def words(tmp_path) -> Path:
    """A folder of forty words: pieces of half a second of recorded speech."""
    whole = np.concatenate([audio.trim(audio.read(p)) for p in SPEECH])
    folder = tmp_path / "words"
    (folder / "more").mkdir(parents=True)
    for n in range(40):
        piece = np.roll(whole, -n * 6000)[: SAMPLE_RATE // 2]
        path = folder / ("more" if n % 2 else "") / f"{n}.wav"
        soundfile.write(path, piece, SAMPLE_RATE)
    return folder


def test_words_are_joined_to_clips_that_training_reads(words, tmp_path, capsys):
    out = tmp_path / "shards"
    command = [f"anna={words}", "--out", str(out), "--seed", "3"]
    assert main(command) == 0 and "anna-3.tar" in capsys.readouterr().out
    samples = find([out], untranscribed=True)[0]
    lengths = [len(decode(s.audio.read())[0]) / SAMPLE_RATE for s in samples]
    assert {(s.text, s.speaker) for s in samples} == {("", "anna")}
    assert all(CLIP[0] <= n <= LONGEST for n in lengths) and 10 < sum(lengths) < 28
    loss = LossConfig(pair=1.0, untranscribed=True)
    plan = BatchPlan(2, 3000, 1500, buckets=1)
    loaded = until(SpeechBatches([str(out / "anna-3.tar")], TOKENIZER, plan, loss=loss), 1)
    assert sum(len(x.texts) for x in loaded) >= len(samples) // 2
    made = (out / "anna-3.tar").stat()
    assert main(command) == 0 and (out / "anna-3.tar").stat() == made


def test_so_many_minutes_of_a_person_are_enough(words, tmp_path):
    out = tmp_path / "shards"
    assert main([f"anna={words}", "--out", str(out), "--minutes", "0.15"]) == 0
    found = find([out], untranscribed=True)[0]
    assert 0 < sum(len(decode(s.audio.read())[0]) for s in found) / SAMPLE_RATE <= 9.2


def test_telephones_silence_and_what_is_no_audio_are_left_out(tmp_path):
    wave = audio.read(SPEECH[0])

    def made(name: str, samples: np.ndarray, rate: int = SAMPLE_RATE) -> Path:
        soundfile.write(path := tmp_path / name, samples, rate)
        return path

    assert usable(made("whole.wav", wave)) is not None
    assert usable(made("telephone.wav", audio.resample(wave, SAMPLE_RATE, 8000), 8000)) is None
    dull = audio.resample(audio.resample(wave, SAMPLE_RATE, 8000), 8000, SAMPLE_RATE)
    assert usable(made("dull.wav", dull)) is None
    assert usable(made("silent.wav", np.zeros(SAMPLE_RATE))) is None
    assert usable(made("click.wav", wave[: SAMPLE_RATE // 10])) is None
    (broken := tmp_path / "broken.wav").write_bytes(b"RIFF no audio")
    assert usable(broken) is None


def test_clips_keep_every_word_in_its_order_but_the_last_ones():
    waves = [np.full(SAMPLE_RATE // 2, n, np.float32) for n in range(60)]
    clips = list(clips_of(iter(waves), np.random.default_rng(0)))
    said = [n for clip in clips for n in clip[:: SAMPLE_RATE // 2].astype(int).tolist()]
    assert said == list(range(len(said))) and 60 - len(said) <= CLIP[1] / 0.5
    assert all(CLIP[0] <= len(c) / SAMPLE_RATE <= CLIP[1] + 0.5 for c in clips)
    assert not list(clips_of([np.zeros(int(10.5 * SAMPLE_RATE), np.float32)] * 3,
                             np.random.default_rng(0)))  # fmt: skip


def test_unpacked_packages_are_told_apart_by_person(words, tmp_path, capsys):
    root = tmp_path / "root"
    for n, path in enumerate(sorted(words.rglob("*.wav"))):
        for place in (
            f"usr/share/klettres/de/{'alpha' if n % 2 else 'syllab'}/{n}.ogg",
            f"usr/share/games/fillets-ng/sound/city/cs/vit-{'mv'[n % 2]}-{n}.ogg",
            f"usr/share/kajongg/voices/de/male1/{n}.ogg",
            f"usr/share/tuxpaint/stamps/animals/{n}_desc_pt_BR.ogg",
        ):
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(root / place, *soundfile.read(path))
    assert main(["--debian", str(root), "--out", str(tmp_path / "shards")]) == 0
    people = {s.speaker for s in find([tmp_path / "shards"], untranscribed=True)[0]}
    assert people == {"klettres-de", "fillets-cs-m", "fillets-cs-v", "kajongg-de-male1"}
    assert len(DEBIAN) > 70
    (empty := tmp_path / "empty").mkdir()
    out = ["--out", str(tmp_path / "shards")]
    for more, said in (
        ([], "no people"),
        (["--debian", str(empty)], "none of the packages"),
        (["--debian", str(tmp_path / "nowhere")], "no folder"),
        ([f"anna={words}", "--minutes", "0"], "--minutes is 0"),
    ):
        assert main([*more, *out]) == 2
        assert said in capsys.readouterr().err


def test_a_person_of_whom_nothing_can_be_used_leaves_no_shard(tmp_path, capsys):
    (nobody := tmp_path / "nobody").mkdir()
    out = tmp_path / "shards"
    assert main([f"nobody={nobody}", "--out", str(out)]) == 0
    assert "0.0 minutes" in capsys.readouterr().out and not list(out.iterdir())
