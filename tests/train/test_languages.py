"""Languages of a run: a model of two, from shards to speech in both."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from convert.__main__ import main as convert
from nanospeech.config import AudioConfig, ModelConfig
from nanospeech.corpus.layouts import Sample, Source
from nanospeech.corpus.written_out import written_out
from nanospeech.errors import InputError
from nanospeech.evaluate import durations
from nanospeech.evaluate.items import Item
from nanospeech.evaluate.worker import Settings, Task, Worker
from nanospeech.generate import main as speak
from nanospeech.load import load_engine
from nanospeech.prepare import spoken
from nanospeech.release.folder import open_release
from nanospeech.text.sentences import encode, prepare
from nanospeech.text.tokenizer import Tokenizer
from nanospeech_torch.train.__main__ import main as train
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from tests.conftest import add_voice, tone

ENGLISH = "Am Dr. Li paid 3 pounds."
GERMAN = "Am 3. Mai um 9:30 Uhr."
READ = {
    "en": "Am Doctor Li paid three pounds.",
    "de": "Am dritten Mai um neun Uhr dreißig.",
    "und": "Am 3. Mai um 9:30 Uhr.",
}
VOCAB = [*" abcdefghijklmnopqrstuvwxyzäöüß.,"]
CONFIG = """
run_dir: {here}/run
data: {{shards: [{here}/*.tar], tokenizer: chars, vocab: {here}/vocab.txt, language: und,
       batch_size: 2, max_duration: 300}}
dit: {{dim: 64, depth: 1, heads: 1, text_dim: 32, conv_layers: 1, text_upsampling: aligned,
      patch_size: 2}}
train: {{log_every: 1}}
total_steps: 3
warmup_steps: 1
"""


def sample(key: str, text: str, language: str | None) -> dict:
    meta = {"text": text, "duration": 2.0} | ({"language": language} if language else {})
    file = io.BytesIO()
    soundfile.write(file, tone(2.0, 140 + len(text)), 24_000, format="FLAC")
    return {"__key__": key, "flac": file.getvalue(), "json": meta}


def write_shard(path: Path, samples: list[dict]) -> None:
    with tarfile.open(path, "w") as tar:
        for one in samples:
            parts = {"flac": one["flac"], "json": json.dumps(one["json"]).encode()}
            for kind, data in parts.items():
                info = tarfile.TarInfo(f"{one['__key__']}.{kind}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


@pytest.fixture(scope="module")
def bilingual(tmp_path_factory, golden) -> Path:
    """A release folder of a model that has heard both languages for three steps."""
    pytest.importorskip("num2words", reason="it is of the extra languages")
    here = tmp_path_factory.mktemp("bilingual")
    for code, text in ("en", ENGLISH), ("de", GERMAN):
        samples = [sample(f"{code}{i}", text, code) for i in range(3)]
        write_shard(here / f"{code}.tar", samples)
    Tokenizer("chars", VOCAB).save(here / "vocab.txt")
    (here / "config.yaml").write_text(CONFIG.format(here=here))
    assert train(["--config", str(here / "config.yaml")]) == 0
    vocoder = str(golden / "vocos_pytorch_model.bin")
    model = str(here / "model")
    assert convert([str(here / "run"), "--vocoder", vocoder, "--output", model]) == 0
    add_voice(here / "model")
    return here / "model"


def test_each_sample_is_read_in_its_own_language():
    pytest.importorskip("num2words", reason="it is of the extra languages")
    tokenizer = Tokenizer("chars", [*VOCAB, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ:"]).with_language("und")
    batches = SpeechBatches([], tokenizer, BatchPlan(2, 600, 300), AudioConfig())
    given = [sample("a", ENGLISH, "en"), sample("b", GERMAN, "de-AT"), sample("c", GERMAN, None)]
    texts = [batches.describe(one, batches.skipped)["text"] for one in given]
    assert texts == [READ["en"], READ["de"], READ["und"]]
    # reading them again, as all texts are, leaves them as they are
    assert [batches.readable(text) for text in texts[:2]] == texts[:2]
    assert batches.describe(sample("d", GERMAN, "nonsense!"), batches.skipped) is None
    assert batches.skipped["invalid language or text"] == 1


def test_a_recordings_text_is_written_out_in_the_language_that_it_names():
    pytest.importorskip("num2words", reason="it is of the extra languages")
    tokenizer = Tokenizer("chars", [*VOCAB, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ:"]).with_language("und")

    def given(language: str | None, text: str = GERMAN) -> str:
        one = Sample("a", ("a",), Source(Path("a.wav")), text, extra={"language": language})
        return written_out(one, tokenizer).text

    assert given("de_AT") == READ["de"] and given("en-GB", ENGLISH) == READ["en"]
    assert given(None) == given("") == GERMAN
    with pytest.raises(InputError, match="'nonsense!'"):
        given("nonsense!")


def test_the_model_says_that_it_has_several(bilingual):
    assert ModelConfig.load(bilingual / "config.json").language == "und"
    tokenizer = open_release(bilingual).tokenizer
    for code, text in ("en", ENGLISH), ("de", GERMAN), ("und", GERMAN):
        assert prepare(text, tokenizer.with_language(code)) == READ[code]
    german = tokenizer.with_language("de")
    assert np.array_equal(
        encode(prepare("3 Äpfel", german), german), [VOCAB.index(c) for c in "drei äpfel"]
    )


def test_it_speaks_both_and_each_by_its_own_rules(bilingual, tmp_path):
    def said(text: str, language: str) -> np.ndarray:
        path = tmp_path / "a.wav"
        flags = ["--model", str(bilingual), "--voice", "tone", "--language", language]
        flags += ["--backend", "torch", "--steps", "1", "--seed", "1", "--quiet"]
        assert speak([*flags, "--text", text, "--output", str(path)]) == 0
        return soundfile.read(path)[0]

    for code, text in ("en", ENGLISH), ("de", GERMAN):
        heard = said(text, code)
        assert np.array_equal(heard, said(READ[code], code)), "the words that it stands for"
        assert np.abs(heard).max() > 0.01
    # "3." is "dritten" in German alone
    assert len(said(GERMAN, "en")) != len(said(GERMAN, "de"))


@pytest.mark.parametrize("code", ["de", "en"])
def test_what_is_measured_or_taught_of_it_is_read_by_the_language_that_is_named(
    bilingual, tmp_path, code
):
    text = {"en": ENGLISH, "de": GERMAN}[code]
    engine = load_engine(bilingual, backend="torch")
    clip = durations.Clip("a", text, "ann", tone(2.0), code)
    ((row,), skipped) = durations.predict_all(engine, [(clip, clip)], ["rule"])
    plain = durations.Clip("a", READ[code], "ann", tone(2.0), "und")
    ((wanted,), _) = durations.predict_all(engine, [(plain, plain)], ["rule"])
    assert row.rule == wanted.rule and not skipped
    settings = Settings(tmp_path, ("wer",), str(bilingual), "torch", reads=code)
    speaker = Worker(settings).speaker(Task("tone", Item("a", text), 1, 0, "tone"))
    assert " ".join(speaker.chunks(text)) == READ[code]
    (tmp_path / "texts.txt").write_text(text, encoding="utf-8")
    command = [str(bilingual), str(tmp_path / "texts.txt"), "--clips", "1", "--backend", "torch"]
    command += ["--out", str(tmp_path / "spoken"), "--language", code]
    assert spoken.main(command) == 0
    with tarfile.open(tmp_path / "spoken" / "spoken-000000.tar") as tar:
        (about,) = (tar.extractfile(m).read() for m in tar if m.name.endswith("json"))
    assert json.loads(about)["text"] == READ[code]
