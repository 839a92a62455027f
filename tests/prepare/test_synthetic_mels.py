"""Recordings' mels made again by a model, for a vocoder to learn from."""

import io
import json
import tarfile
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nanospeech.audio import mel
from nanospeech.audio import wave as sound
from nanospeech.audio.postfilter import postfilter
from nanospeech.audio.recording import clipping
from nanospeech.corpus.layouts import Skip
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.corpus.skips import find_some
from nanospeech.load import load_engine
from nanospeech.prepare import spoken
from nanospeech.release.folder import DEFAULT
from nanospeech.speech.speaker import Speaker
from nanospeech_torch.prepare import synthetic_mels
from nanospeech_torch.train.data.segments import SegmentBatches
from nanospeech_torch.train.data.sources import TarSource
from tests.conftest import tone
from tests.train.test_vocoder_gan import LOSS, PLAN, SHARD, samples


def test_a_model_makes_the_mels_of_recordings_again(tiny_aligned, tmp_path, capsys):
    command = [str(tiny_aligned), str(SHARD), "--voice", "tone", "--out", str(tmp_path / "made")]
    assert synthetic_mels.main([*command, "--since", "0.98", "0.98"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["voice"] == "tone" and document["hours"] > 0 and not document["left_out"]
    [path] = (tmp_path / "made").glob("*.tar")
    made = [sample for _, sample in TarSource([path]).open(0)]
    assert {s["__key__"] for s in made} == {s["__key__"] for s in samples()}
    for sample in made:
        own = mel.log_mel(sound.read(sample["flac"]))
        features = np.load(io.BytesIO(sample["npy"]))
        assert features.dtype == np.float16 and len(own) - len(features) in (0, 1)
        # hardly noised: the model had little to say
        assert np.abs(features - own[: len(features)]).mean() < 0.2
    iter(SegmentBatches(made, None, PLAN, None, LOSS))
    (other := tmp_path / "made" / "tone-b-000000.tar").write_bytes(b"another voice's")
    (more := tmp_path / "made" / "tone-000001.tar").write_bytes(b"left from a longer set")
    assert synthetic_mels.main(command) == 2
    assert "holds 2 shards already" in capsys.readouterr().err
    assert synthetic_mels.main([*command, "--overwrite", "--since", "0", "0"]) == 0
    assert other.exists() and not more.exists()
    again = [sample for _, sample in TarSource([path]).open(0)]
    features = np.load(io.BytesIO(again[0]["npy"]))
    assert np.abs(features - mel.log_mel(sound.read(again[0]["flac"]))[: len(features)]).mean() > 1
    assert synthetic_mels.main([*command, "--since", "0.9", "0.1"]) == 2
    assert "--since" in capsys.readouterr().err


def test_a_loud_sound_is_not_cut_off_in_a_vocoders_recordings(tiny_aligned, tmp_path):
    """Its mel has it whole, and the vocoder was to make less of that."""
    wave = 0.01 * tone(4.0) / np.abs(tone(4.0)).max()
    wave[43_760:44_240] *= 50  # where a syllable is loudest
    (folder := tmp_path / "recordings").mkdir()
    sound.write(folder / "laugh.wav", wave)
    (folder / "laugh.txt").write_text("Hello there.", encoding="utf-8")
    out = tmp_path / "made"
    command = [str(tiny_aligned), str(folder), "--voice", "tone", "--out", str(out)]
    assert synthetic_mels.main(command) == 0
    ((_, made),) = TarSource([*out.glob("*.tar")]).open(0)
    assert clipping(made["flac"]) == clipping(folder / "laugh.wav") == 0.0


def test_each_speaker_is_made_after_a_recording_of_their_own(
    tiny_aligned, tmp_path, capsys, monkeypatch
):
    """In a shard of two speakers; the prompts, and nothing else, are left out."""
    monkeypatch.setattr(synthetic_mels, "PROMPT", (1.0, 9.0))
    shard, prompts = tmp_path / "two.tar", []
    with tarfile.open(SHARD) as old, tarfile.open(shard, "w") as new:
        for n, member in enumerate(m for m in old if m.isfile()):
            content = old.extractfile(member).read()  # type: ignore[union-attr]
            if member.name.endswith(".json"):
                content = json.dumps(json.loads(content) | {"speaker": "ab"[n // 4]}).encode()
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    real = synthetic_mels.synthetic_mel

    def noted(speaker, *args):
        prompts.append(speaker.prompt.mel)
        return real(speaker, *args)

    monkeypatch.setattr(synthetic_mels, "synthetic_mel", noted)
    command = [str(tiny_aligned), str(shard), "--each-speaker", "--out", str(tmp_path / "made")]
    assert synthetic_mels.main(command) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["voice"] == "2 speakers"
    assert document["left_out"] == {"its speaker's prompt, or before it": 2}
    [path] = (tmp_path / "made").glob("*.tar")
    made = [sample for _, sample in TarSource([path]).open(0)]
    assert [json.loads(s["json"])["speaker"] for s in made] == ["a", "b"]
    with tarfile.open(shard) as tar:
        firsts = [m for m in tar if not m.name.endswith(".json")][::2]
        files = [tar.extractfile(m).read() for m in firsts]  # type: ignore[union-attr]
    lengths = [len(sound.read(data)) / 256 for data in files]
    assert [len(p) for p in prompts] == pytest.approx(lengths, abs=24)
    assert synthetic_mels.main([*command, "--voice", "tone"]) == 2
    assert "leave out --voice" in capsys.readouterr().err


def test_a_student_makes_its_last_step_and_what_is_heard_is_sharpened(monkeypatch):
    """As kathleen speaks for users: in two steps, of which the second begins at 1 - cos(pi / 4)."""
    speaker = Speaker(load_engine(DEFAULT, "torch", "cpu", "float32"), "kathleen", seed=0)
    assert speaker.engine.distilled
    asked: list[np.ndarray] = []
    network = type(speaker.engine).network
    monkeypatch.setattr(
        type(speaker.engine),
        "network",
        lambda self, x, cond, text, time, lens: (
            asked.append(self.numpy(time)) or network(self, x, cond, text, time, lens)
        ),
    )
    recording, *_ = find_some([SHARD])[0]
    cast = synthetic_mels.Cast(speaker.engine, speaker)

    def mel_of(since: float, as_heard: bool) -> np.ndarray:
        rng = np.random.default_rng(1)
        made = synthetic_mels.made_again(recording, cast, (since, since), 12, 0, rng, as_heard)
        assert not isinstance(made, Skip)
        return made[1]

    plain, heard, other = mel_of(0.2, False), mel_of(0.2, True), mel_of(0.6, False)
    strength, most = speaker.prompt.settings.cfg_strength, speaker.engine.config.dit.max_strength
    assert strength is not None and len(asked) == 3
    for time in asked:  # the voice's own guidance, and steps of a half
        np.testing.assert_allclose(time, [[1 - np.cos(np.pi / 4), strength / most, 0.5]], rtol=1e-6)
    np.testing.assert_array_equal(plain, other)
    np.testing.assert_array_equal(heard, postfilter(plain, speaker.engine.config.postfilter))
    assert np.abs(heard - plain).mean() > 0.05
    own = mel.log_mel(audio_of(recording, speaker))
    assert np.corrcoef(plain.ravel(), own[: len(plain)].ravel())[0, 1] > 0.8


def audio_of(sample, speaker) -> np.ndarray:
    """A sample's wave, as loud as the model's data."""
    wave, _ = decode(sample.audio.read(), 0.5, 12)
    return sound.set_level(wave, speaker.engine.config.audio.prompt_rms)[0]


def test_a_share_of_mels_is_made_after_poor_prompts(tiny_aligned, tmp_path, capsys):
    """The recordings, which the vocoder is to make of them, stay as they are."""
    heard: dict[str, list[dict]] = {}
    for share in ("0", "0.5", "1"):
        out = tmp_path / share
        command = [str(tiny_aligned), str(SHARD), "--voice", "tone", "--out", str(out)]
        assert synthetic_mels.main([*command, "--poor-prompts", share]) == 0
        heard[share] = [sample for _, sample in TarSource([*out.glob("*.tar")]).open(0)]
    clean, some, poor = heard.values()
    assert [s["flac"] for s in clean] == [s["flac"] for s in some] == [s["flac"] for s in poor]
    assert all(c["npy"] != p["npy"] for c, p in zip(clean, poor, strict=True))
    changed = [c["npy"] != s["npy"] for c, s in zip(clean, some, strict=True)]
    assert any(changed) and not all(changed)
    assert all(s["npy"] in (c["npy"], p["npy"]) for c, s, p in zip(clean, some, poor, strict=True))
    capsys.readouterr()
    assert synthetic_mels.main([*command, "--poor-prompts", "1.5"]) == 2
    assert "a share, 0 to 1" in capsys.readouterr().err


def test_a_recording_that_is_gone_by_its_turn_ends_no_run(tmp_path):
    """Hours of clips wait for the same command again, which would end at it again."""
    sound.write(tmp_path / "a.wav", np.ones(24_000, np.float32) / 2)
    (tmp_path / "a.txt").write_text("one")
    cast: Any = SimpleNamespace(engine=SimpleNamespace(tokenizer=None))
    recordings = spoken.Recordings(cast.engine, [tmp_path])
    [sample] = recordings.of["unnamed"]
    (tmp_path / "a.wav").unlink()
    rng = np.random.default_rng(0)
    made = synthetic_mels.made_again(sample, cast, (0.2, 0.5), 12.0, 0.0, rng)
    assert isinstance(made, Skip) and made.reason == "unreadable audio"
    with pytest.raises(BadAudio, match="unreadable audio"):
        recordings.speaker("unnamed", rng)


def test_only_a_model_that_aligns_can_make_mels_again(tiny_release, tmp_path, capsys):
    assert synthetic_mels.main([str(tiny_release), str(SHARD), "--out", str(tmp_path)]) == 2
    assert "no aligned model" in capsys.readouterr().err


def test_a_speaker_is_imitated_after_recordings_of_every_input(tmp_path):
    """As of shards/*.tar: each speaker is in all of them, and would be heard of the first alone."""
    for folder, more in (("one", {}), ("two", {}), ("copies", {"pace": 1.1})):
        (tmp_path / folder).mkdir()
        sound.write(tmp_path / folder / "a.wav", tone(2.0))
        row = {"audio": "a.wav", "text": folder, "speaker": "ann", **more}
        (tmp_path / folder / "metadata.jsonl").write_text(json.dumps(row), encoding="utf-8")
    inputs = [tmp_path / folder for folder in ("one", "two", "copies")]
    found = spoken.Recordings(None, inputs).of
    assert {who: [s.text for s in samples] for who, samples in found.items()} == {
        "ann": ["one", "two"]
    }
