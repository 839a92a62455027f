"""Types: a type checker passes what works, and finds the commonest mistakes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SAMPLE = """
import io

from nanospeech import SampleOptions, Speaker, load_engine
from nanospeech.engine.worker import Worker
from nanospeech.text.markup import read_markup

engine = load_engine()
speaker = Speaker(engine, chunk_seconds=3, duration="rule", aligner=engine)
Speaker(Worker(load_engine), ref_audio=io.BytesIO(b""), ref_text=None)
SampleOptions(steps=4, method="rk4", schedule="uniform", guidance="cfg-zero")
for utterance in speaker.speak_many((text for text in ["One."]), raise_errors=True):
    utterance.save("one.wav")
for wave in speaker.stream(read_markup("One. [pause 1s]")):
    wave.sum()
Speaker("voice")  # wrong
Speaker(engine, chunk_second=3)  # wrong
Speaker(engine, duration="rules")  # wrong
Speaker(engine, aligner=3)  # wrong
SampleOptions(method="heun")  # wrong
speaker.speak_many(["One."])[0].save("one.wav")  # wrong
speaker.stream(3)  # wrong
"""


def test_a_type_checker_finds_the_mistakes_and_nothing_else(tmp_path):
    pytest.importorskip("pyright", reason="no pyright here")
    (tmp_path / "sample.py").write_text(SAMPLE)
    config = {"include": ["sample.py"], "extraPaths": [str(ROOT)], "typeCheckingMode": "basic"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = SAMPLE.splitlines()
    wrong = {number for number, line in enumerate(lines) if line.endswith("# wrong")}
    assert {each["range"]["start"]["line"] for each in found} == wrong, done.stdout
