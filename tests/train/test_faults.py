"""Faults: a user's bug ends the run and is named; a broken file is counted, and named too."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from datasets import Dataset, IterableDataset, load_dataset
from torch.utils.data import DataLoader

from nanospeech.errors import DataError, InputError
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.loader import make_loader
from nanospeech_torch.train.data.sources import make_source, undecoded
from tests.train.test_data import feature_shards, features, until
from tests.training import write_shards

ROWS = [{"__key__": f"{i}", "json": '{"text": "c1"}', "npy": [[0.0] * 4] * 40} for i in range(9)]


def careless(row: dict) -> dict:
    return {"length": len(row["nothing"])}


def streamed(folder: Path) -> IterableDataset:
    """A dataset of three JSON lines files of three samples each."""
    paths = [folder / f"{n}.jsonl" for n in range(3)]
    for n, path in enumerate(paths):
        path.write_text("".join(json.dumps(r) + "\n" for r in ROWS[3 * n : 3 * n + 3]))
    return load_dataset("json", data_files=list(map(str, paths)), split="train", streaming=True)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda d: d.map(careless),
            r"KeyError: 'nothing', in careless \(.*test_faults\.py, line \d+",
        ),
        (lambda d: d.map(json.loads), r"TypeError: .*, in loads \(.*, line \d+"),
        (lambda d: d.filter(lambda row: row["npy"][40]), r"IndexError: .*, in <lambda> \("),
    ],
)
def test_a_bug_in_a_mapping_ends_the_run_and_is_named(tmp_path, spoil, said):
    with pytest.raises(DataError, match="a function given to the dataset failed.*" + said) as e:
        list(features(spoil(streamed(tmp_path))))
    assert "shard" in str(e.value) and e.value.__cause__ is not None
    with pytest.raises(DataError, match=said):  # out of a loader's worker too
        next(iter(DataLoader(features(spoil(streamed(tmp_path))), batch_size=None, num_workers=1)))


def test_what_a_loaders_worker_says_is_told_without_its_traceback(tmp_path):
    """A page of torch's was the answer to data in which nothing can be used."""
    (tmp_path / "bad.tar").write_text("no tar")
    with pytest.raises(DataError) as e:
        list(make_loader(features([str(tmp_path / "bad.tar")]), workers=1))
    assert str(e.value).startswith("nothing in the dataset can be used: 1 broken shard")
    assert "Original Traceback" in str(e.value.__cause__)


def test_a_bug_in_a_transform_or_a_generator_is_named():
    def one(rows: dict) -> dict:
        return {**rows, "json": [int(x) for x in rows["json"]]}

    table = Dataset.from_list(ROWS).with_transform(one)
    with pytest.raises(DataError, match=r"row \d of the dataset: ValueError: .* in <listcomp>|one"):
        list(features(table))

    def generate():
        yield ROWS[0]
        raise ValueError("what is this")

    with pytest.raises(DataError, match="after 1 samples: ValueError: what is this, in generate"):
        list(features(IterableDataset.from_generator(generate)))


def test_a_broken_file_of_a_mapped_dataset_is_no_bug(tmp_path, caplog):
    data = streamed(tmp_path).map(lambda row: {"length": len(row["npy"])})
    (tmp_path / "1.jsonl").write_text(json.dumps(ROWS[0]) + '\n{"npy": [')
    loaded = until(features(data, loss=LossConfig(pair=0.0)), 3)
    assert sum((x.skipped for x in loaded), Counter()) == {"broken shard": 3}
    assert sum(len(x.texts) for x in loaded) >= 3 * 6
    (message,) = [
        r.getMessage() for r in caplog.records if r.name == "nanospeech"
    ]  # once, not in each epoch
    assert "broken shard: shard 1 of the dataset, after" in message and "JSON" in message
    for n in range(3):
        (tmp_path / f"{n}.jsonl").write_text("{")
    with pytest.raises(
        DataError, match=r"can be used: 3 broken shard \(the last: shard \d of .*JSON"
    ):
        list(features(data))


def test_a_file_that_a_mapping_cannot_open_is_no_bug(tmp_path, caplog):
    def read(rows: dict) -> dict:
        return {**rows, "text": [Path(tmp_path / key).read_text() for key in rows["__key__"]]}

    for i in range(9):
        (tmp_path / f"{i}").write_text("c1")
    (tmp_path / "4").unlink()
    table = Dataset.from_list(ROWS).with_transform(read)
    loaded = until(features(table, loss=LossConfig(pair=0.0)), 1)
    assert sum(len(x.texts) for x in loaded) == 8
    assert sum((x.skipped for x in loaded), Counter()) == {"broken row": 1}
    assert "row 4 of the dataset: FileNotFoundError" in caplog.text


@pytest.mark.skipif(find_spec("torchcodec") is not None, reason="here torchcodec is installed")
def test_a_package_that_is_missing_is_named(tmp_path):
    files = write_shards(tmp_path, 2)
    clips = load_dataset("webdataset", data_files=files, split="train", streaming=True)
    with pytest.raises(InputError, match=r"install 'torchcodec'.*undecoded\(dataset\)"):
        list(features(clips.map(lambda row: {"said": 1})))
    mapped = undecoded(clips).map(lambda row: {"said": 1})
    rows = [s for n in range(2) for _, s in make_source(mapped).open(n)]
    assert len(rows) == 4 and all(s["said"] == 1 and s["mp3"]["bytes"] for s in rows)


def test_the_cause_of_a_broken_tar_is_logged(tmp_path, caplog):
    paths = feature_shards(tmp_path, 2, 6)
    Path(paths[1]).write_bytes(Path(paths[1]).read_bytes()[:1700])
    until(features(paths), 3)
    (message,) = [r.getMessage() for r in caplog.records if r.name == "nanospeech"]
    assert message.startswith(f"broken shard: {paths[1]}: ReadError: ")
