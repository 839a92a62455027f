"""Clips that a model makes: a run that was stopped goes on, and makes what it would have made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
from nanospeech.audio import wave as audio
from nanospeech.prepare import spoken
from nanospeech.prepare.portions import members_of
from nanospeech_torch.prepare import synthetic_mels
from tests.conftest import tone

MADE_BY = {spoken: "sample", synthetic_mels: "synthetic_mel"}  # the function that makes a clip


class Maker:
    """Counts the clips that are made, and is interrupted before one of them."""

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch):
        self.real, self.made, self.last = getattr(module, MADE_BY[module]), 0, 99
        monkeypatch.setattr(module, MADE_BY[module], self)
        monkeypatch.setattr(module, "SIZE", 2)

    def __call__(self, *args):
        if self.made == self.last:
            raise KeyboardInterrupt
        self.made += 1
        return self.real(*args)


def shards(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.glob("*.tar")}


@pytest.mark.parametrize(
    "how",
    ["voices", pytest.param("recordings", marks=pytest.mark.slow), "mels", "each speaker"],
)
def test_a_run_that_was_stopped_goes_on_to_what_it_would_have_made(
    tiny_aligned, tmp_path, monkeypatch, capsys, how
):
    model, texts = tmp_path / "model", tmp_path / "texts.txt"
    shutil.copytree(tiny_aligned, model)
    texts.write_text("Hello there.\nHow are you?\nGood day.\n", encoding="utf-8")
    recordings, rows = tmp_path / "recordings.jsonl", []
    for n in range(8):
        audio.write(tmp_path / f"{n}.wav", tone(2.6 + 0.1 * n))
        rows.append({"audio": f"{n}.wav", "text": f"number {n}", "speaker": "ab"[n % 2]})
    recordings.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    module, command = spoken, [str(model), str(texts), "--clips", "7", "--backend", "torch"]
    command += ["--recordings", str(recordings)] if how == "recordings" else []
    if how in ("mels", "each speaker"):
        module, command = synthetic_mels, [str(model), str(recordings)]
        command += ["--each-speaker"] if how == "each speaker" else ["--hours", "0.005"]
    maker = Maker(module, monkeypatch)

    def run(name: str, *more: str) -> tuple[int, dict]:
        maker.made = 0
        code = module.main([*command, "--out", str(tmp_path / name), *more])
        lines = capsys.readouterr().out.splitlines()
        return code, json.loads(lines[-1]) if lines else {}

    code, told = run("whole")
    clips = maker.made
    assert code == 0 and clips > 4
    mels = [m["npy"] for p in sorted((tmp_path / "whole").glob("*.tar")) for _, m in members_of(p)]
    assert len(set(mels)) == clips
    maker.last = 3
    assert run("parts") == (130, {}) and len(shards(tmp_path / "parts")) == 1
    for read in (p for p in (texts, recordings) if str(p) in command):
        (before := tmp_path / "before").write_bytes(read.read_bytes())
        other = before.read_text().replace("Hello", "Hi").replace("number", "count")
        read.write_text(other, encoding="utf-8")
        assert run("parts")[0] == 2  # the shard that is there is of others
        before.replace(read)
    assert run("parts", "--seed", "1")[0] == 2
    maker.last = 99
    again = run("parts")[1]
    assert maker.made == clips - 2 and shards(tmp_path / "parts") == shards(tmp_path / "whole")
    assert again | {"left_out": 0} == told | {"left_out": 0}
    assert run("parts")[0] == 0 and maker.made == 0
    if how == "voices":  # more of them
        assert run("parts", "--clips", "8")[0] == 0 and maker.made == 1
    config = json.loads((model / "config.json").read_text()) | {"temperature": 0.9}
    (model / "config.json").write_text(json.dumps(config))  # or it was trained further
    assert run("parts")[0] == 2 and run("parts", "--overwrite")[0] == 0 and maker.made == clips
    assert run("parts")[0] == 0 and maker.made == 0


def test_shards_that_are_to_be_replaced_are_not_gone_on_after(tiny_aligned, tmp_path, monkeypatch):
    """But where the run that was to replace them was stopped."""
    (texts := tmp_path / "texts.txt").write_text("Hello there.\n", encoding="utf-8")
    maker, out = Maker(spoken, monkeypatch), tmp_path / "made"
    command = [str(tiny_aligned), str(texts), "--clips", "5", "--backend", "torch"]
    command += ["--out", str(out)]
    assert spoken.main(command) == 0
    before, maker.made, maker.last = shards(out), 0, 3
    assert spoken.main([*command, "--seed", "1", "--overwrite"]) == 130 and shards(out) == before
    maker.last = 99
    assert spoken.main([*command, "--seed", "1"]) == 2 and shards(out) == before
    assert spoken.main(command) == 0 and maker.made == 3 and shards(out) == before
    assert spoken.main([*command, "--seed", "1", "--overwrite"]) == 0
    assert shards(out).keys() == before.keys() and shards(out) != before
