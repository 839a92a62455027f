"""The stream: each sample once an epoch, whatever the streams; going on is as if never stopped."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Audio, Dataset, DatasetDict, Value, load_dataset, load_from_disk

from nanospeech.config import AudioConfig
from nanospeech.corpus.tars import split_name
from nanospeech.errors import CheckpointError, DataError, InputError
from nanospeech_torch.train.data import clips
from nanospeech_torch.train.data.order import SampleStream, StreamState, redeal, resume
from nanospeech_torch.train.data.sources import (
    DatasetSource,
    IterableSource,
    TarSource,
    find_shards,
    make_source,
)
from tests.training import samples, write_shards, write_tar


def numbered(folder: Path, shards: int, each: int) -> TarSource:
    """Shards of small samples called s000-000, s000-001, …; the later shards hold more."""
    folder.mkdir(exist_ok=True)
    paths = [
        write_tar(
            folder / f"s{s:03d}.tar",
            [(f"s{s:03d}-{i:03d}.json", json.dumps({"i": i}).encode()) for i in range(each + s)],
        )
        for s in range(shards)
    ]
    return TarSource(paths)


def everything(source) -> set[tuple[int, int]]:
    return {(s, i) for s in range(len(source)) for i, _ in source.open(s)}


def epoch_of(stream: SampleStream) -> list:
    """What is left of a stream's epoch; goes on to the next one."""
    taken = []
    while (got := stream.take()) is not None:
        taken.append(got[0])
    stream.advance()
    return taken


@pytest.mark.parametrize("streams", [1, 2, 3, 5])
@pytest.mark.parametrize("buffer", [1, 7])
def test_streams_share_an_epoch_without_overlap(tmp_path, streams, buffer):
    source = numbered(tmp_path, 3, 4)
    all_streams = [SampleStream(source, 1, s, streams, buffer) for s in range(streams)]
    for epoch in range(4):
        taken = [ref for stream in all_streams for ref in epoch_of(stream)]
        assert {e for e, _, _ in taken} == {epoch}
        assert sorted(r[1:] for r in taken) == sorted(everything(source))


def test_epochs_are_shuffled_and_a_seed_fixes_them(tmp_path):
    source = numbered(tmp_path, 4, 5)
    stream = SampleStream(source, 3, shuffle_buffer=6)
    first, second = ([r[1:] for r in epoch_of(stream)] for _ in range(2))
    assert first != second and first != sorted(first)
    assert [r[1:] for r in epoch_of(SampleStream(source, 3, shuffle_buffer=6))] == first
    assert [r[1:] for r in epoch_of(SampleStream(source, 4, shuffle_buffer=6))] != first


def test_no_stream_has_more_to_do_in_the_long_run(tmp_path):
    source = numbered(tmp_path, 5, 4)
    counts = []
    for s in range(3):
        stream = SampleStream(source, 0, s, 3)
        counts.append(sum(len({r[1] for r in epoch_of(stream)}) for _ in range(6)))
    assert max(counts) - min(counts) <= 1


def test_a_stream_resumes_from_every_state(tmp_path):
    source = numbered(tmp_path, 3, 4)
    stream, places, taken = SampleStream(source, 5, 1, 2, 4), [], []
    for _ in range(30):
        places.append(StreamState.from_json(json.loads(json.dumps(stream.place().to_json()))))
        while (got := stream.take()) is None:
            stream.advance()
        taken.append((got[0], got[1]["__key__"]))
    for start, place in enumerate(places):
        again = SampleStream(source, 5, 1, 2, 4, place)
        for want in taken[start:]:
            while (got := again.take()) is None:
                again.advance()
            assert (got[0], got[1]["__key__"]) == want


def test_going_on_reads_only_the_shards_of_pending_samples(tmp_path):
    class Watched(TarSource):
        def open(self, shard, *args, **options):
            opened.append(shard)
            return super().open(shard, *args, **options)

    opened: list[int] = []
    source = Watched(numbered(tmp_path, 8, 4).shards)
    stream = SampleStream(source, 0, shuffle_buffer=3)
    for _ in range(20):
        stream.take()
    place = stream.place()
    opened.clear()
    SampleStream(source, 0, shuffle_buffer=3, place=place).take()
    pending = {s for _, s, _ in place.pending()}
    assert set(opened) <= pending | {int(place.units[0][1])} and len(opened) < 4


@pytest.mark.parametrize(
    ("shards", "before", "after"),
    [(5, 1, 2), (5, 2, 1), (5, 2, 3), (1, 2, 3), (2, 5, 3), (3, 4, 1)],
)
@pytest.mark.parametrize("buffer", [1, 6])
@pytest.mark.parametrize("steps", [0, 5, 17])
def test_another_number_of_streams_repeats_and_skips_nothing(
    tmp_path, shards, before, after, buffer, steps
):
    source = numbered(tmp_path, shards, 6)
    used: Counter = Counter()
    saved: list[dict[int, StreamState]] = []
    for s in range(before):
        stream = SampleStream(source, 2, s, before, buffer)
        for _ in range(steps * (s + 1)):  # some run ahead, even into another epoch
            while (got := stream.take()) is None:
                stream.advance()
            used[got[0]] += 1
        saved.append({0: stream.place()})
    last = max(p[0].fresh for p in saved)
    for stream, place in enumerate(redeal(saved, len(source), 2, after)):
        again = SampleStream(source, 2, stream, after, buffer, place)
        while again.epoch <= last:
            used.update(epoch_of(again))
    want = {(e, s, i): 1 for e in range(last + 1) for s, i in everything(source)}
    assert used == want


def test_the_same_streams_resume_as_they_were_and_others_are_dealt_anew(tmp_path):
    source = numbered(tmp_path, 4, 6)
    saved: list[dict[int, StreamState]] = [{}, {}]
    for stream in range(4):
        s = SampleStream(source, 0, stream, 4, 5)
        for _ in range(stream):
            s.take()
        saved[stream // 2][stream % 2] = s.place()
    places, same = resume(saved, 4, 0, world=2, workers=2)
    assert same and places == saved
    places, same = resume(saved, 4, 0, world=4, workers=1)  # the same streams, held by others
    assert not same and [p[0] for p in places] == [p for r in saved for p in r.values()]
    places, same = resume(saved, 4, 0, world=1, workers=3)
    assert not same and {p.stream for p in places[0].values()} == {0, 1, 2}
    places, same = resume([{}], 4, 0, world=1, workers=1)
    assert same and places == [{}]


def test_a_stream_state_of_other_shards_or_streams_is_refused(tmp_path):
    source = numbered(tmp_path, 2, 3)
    place = SampleStream(source).place()
    with pytest.raises(DataError, match="2 shards and there are 3 now"):
        resume([{0: place}], 3, 0, 1, 1)
    with pytest.raises(DataError, match="stream 0 of 2"):
        SampleStream(source, 0, 0, 2, place=place)
    with pytest.raises(CheckpointError, match="not the state of a data stream"):
        StreamState.from_json({"epoch": 1})


def test_a_tar_that_breaks_off_gives_what_it_had(tmp_path):
    whole = (numbered(tmp_path, 1, 9).shards)[0]
    data = Path(whole).read_bytes()
    for cut in range(0, 10 * 1024, 300):
        (tmp_path / "cut.tar").write_bytes(data[:cut])
        skipped: Counter = Counter()
        got = [s for _, s in TarSource([tmp_path / "cut.tar"]).open(0, skipped=skipped)]
        # a sample is a header of 512 bytes, 8 of JSON, and zeros up to the next 512
        assert len(got) == min(9, max(0, (cut - 520) // 1024 + 1))
        assert skipped == ({} if cut >= 9 * 1024 + 512 else {"broken shard": 1})


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    path = Path(numbered(tmp_path, 1, 9).shards[0])
    data = bytearray(path.read_bytes())
    data[4 * 1024 : 4 * 1024 + 100] = b"x" * 100
    path.write_bytes(data)
    skipped: Counter = Counter()
    got = [i for i, _ in TarSource([path]).open(0, skipped=skipped)]
    assert got == [0, 1, 2, 3] and skipped == {"broken shard": 1}


def test_what_is_no_sample_is_left_out(tmp_path):
    path = tmp_path / "odd.tar"
    with tarfile.open(path, "w") as tar:
        link = tarfile.TarInfo("link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        for name, size in (("a/x.json", 9), ("b/x.json", 9), ("big.mp3", 5000), ("README", 9)):
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, io.BytesIO(b"1" * size))
    skipped: Counter = Counter()
    got = [s["__key__"] for _, s in TarSource([path], largest=1000).open(0, skipped=skipped)]
    assert got == ["a/x", "b/x"] and skipped == {"too big a file": 1}


def test_names_are_cut_at_the_first_dot_and_never_leave_a_folder():
    assert split_name("s.1/x.ref.npy") == ("s.1/x", "ref.npy")
    assert split_name("../../etc/./x.JSON") == ("etc/x", "json")
    assert split_name("/x.json") == ("x", "json")


def test_the_hidden_files_of_a_mac_part_no_sample(tmp_path):
    names = ("a/._x.mp3", "a/x.mp3", "a/._x.json", "a/x.json", ".DS_Store")
    path = write_tar(tmp_path / "mac.tar", [(name, name.encode()) for name in names])
    source = TarSource([path])
    assert [sorted(s) for _, s in source.open(0)] == [["__key__", "json", "mp3"]]
    assert [s["json"] for _, s in source.pick(0, {0})] == [b"a/x.json"]


def test_a_url_is_read_and_gone_on_with_where_it_broke_off(tmp_path, monkeypatch):
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    data = Path(numbered(tmp_path, 1, 9).shards[0]).read_bytes()
    fails = iter([3000, 7000])

    class Flaky(MemoryFileSystem):
        protocol = "flaky"

        def _open(self, *args, **options):
            until = next(fails, None)
            return io.BytesIO(data[:until])

    fsspec.register_implementation("flaky", Flaky, clobber=True)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    skipped: Counter = Counter()
    got = [i for i, _ in TarSource(["flaky://s.tar"]).open(0, skipped=skipped)]
    assert got == list(range(9)) and not skipped
    fails = iter([3000] * 9)
    got = [i for i, _ in TarSource(["flaky://s.tar"]).open(0, skipped=skipped)]
    assert got and skipped == {"broken shard": 1}


class Outage:
    """A store that serves a few kB at a time, silent for so many seconds in between; its clock."""

    def __init__(self, data: bytes, silence: float):
        self.data, self.silence, self.now, self.back, self.served = data, silence, 0.0, 0.0, 0

    def open(self, *_: object, **__: object) -> io.BytesIO:
        if self.now < self.back:
            raise ConnectionError("the store cannot be reached")
        self.back, self.served = self.now + self.silence, self.served + 1
        return io.BytesIO(self.data[: 3000 * self.served])

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("silence", "whole"), [(0, True), (60, True), (70, False)])
def test_a_store_may_be_silent_for_a_minute_however_often(tmp_path, monkeypatch, silence, whole):
    store = Outage(Path(numbered(tmp_path, 1, 30).shards[0]).read_bytes(), silence)
    monkeypatch.setattr("time.sleep", store.sleep)
    monkeypatch.setattr("nanospeech_torch.train.data.sources.opened", store.open)
    skipped: Counter = Counter()
    got = [i for i, _ in TarSource(["https://store/s.tar"]).open(0, skipped=skipped)]
    assert (got == list(range(30)), skipped) == (whole, {} if whole else {"broken shard": 1})
    assert got == list(range(len(got))) and len(got) >= 2


@pytest.mark.parametrize(("faults", "whole"), [(1, True), (2, False)])
def test_a_disk_may_fail_once(tmp_path, monkeypatch, faults, whole):
    path, waits = numbered(tmp_path, 1, 9).shards[0], []
    left = [OSError("stale file handle")] * faults

    def opened(path: str) -> io.BufferedReader:
        if left:
            raise left.pop()
        return open(path, "rb")

    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr("nanospeech_torch.train.data.sources.opened", opened)
    got = [i for i, _ in TarSource([path]).open(0)]
    assert got == (list(range(9)) if whole else []) and waits == [1]


def test_shards_are_found_by_patterns(tmp_path):
    shards = numbered(tmp_path, 3, 1).shards
    assert find_shards([tmp_path / "s*.tar"]) == shards
    assert find_shards([str(tmp_path / "s{000..002}.tar"), shards[0]]) == shards
    urls = find_shards(["https://example.org/s-{08..11}.tar?x=*"])
    assert urls[0].endswith("s-08.tar?x=*") and len(urls) == 4
    with pytest.raises(InputError, match="no shards match"):
        find_shards([tmp_path / "none-*.tar"])
    # not without a word on a part of the data
    with pytest.raises(InputError, match=r"no shards match '.*s003.tar', of '.*\{000..003\}.tar'"):
        find_shards([str(tmp_path / "s{000..003}.tar")])
    with pytest.raises(InputError, match="the smaller number comes first"):
        find_shards([shards[0], str(tmp_path / "s{002..000}.tar")])


def test_a_folder_names_its_shards_and_no_spelling_names_one_twice(tmp_path, monkeypatch):
    shards = numbered(tmp_path / "set", 3, 1).shards
    (tmp_path / "set/skipped.csv").touch()
    (tmp_path / "none").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_shards(["set"]) == ["set/s000.tar", "set/s001.tar", "set/s002.tar"]
    assert find_shards([f"{tmp_path}/s*"]) == find_shards([f"{tmp_path}/**/*.tar"]) == shards
    names = find_shards(["set", "./set/*.tar", "set/../set/s001.tar", shards[2]])
    assert len(names) == 3 and [Path(n).resolve() for n in names] == list(map(Path, shards))
    for nothing in ("none", ""):
        with pytest.raises(InputError, match=f"no shards match '{nothing}'"):
            find_shards([nothing])


def test_every_kind_of_dataset_becomes_a_source(tmp_path):
    files = write_shards(tmp_path, 2)
    rows = [{**s, "mp3": s["mp3"]["bytes"]} for s in samples()]
    streamed = load_dataset("webdataset", data_files=files, split="train", streaming=True)
    kinds = {
        TarSource: (files, 2),
        DatasetSource: (streamed, 2),
        IterableSource: (rows, 1),
    }
    for kind, (data, shards) in kinds.items():
        source = make_source(data)
        assert isinstance(source, kind) and len(source) == shards
        assert make_source(source) is source
        keys = [s["__key__"] for n in range(shards) for _, s in source.open(n)]
        assert sorted(keys) == sorted(s["__key__"] for s in rows)
        assert [i for i, _ in source.open(0, 1)] == [i for i, _ in source.open(0)][1:]
    table = make_source(Dataset.from_list(rows * 100))
    assert len(table) == 2 and sum(1 for n in range(2) for _ in table.open(n)) == 400
    assert [i for i, _ in table.open(1, 140)] == [140, 141, 142, 143]


def test_recordings_of_a_dataset_are_read_as_they_are_stored(tmp_path):
    def row(sample: dict) -> dict:
        return {"audio": {"path": None, **sample["mp3"]}, "sample_rate": 24_000, **sample["json"]}

    rows = [row(sample) for sample in samples()]
    paths = Value("string")
    Dataset.from_list(rows).cast_column(
        "audio", {"bytes": Value("binary"), "path": paths}
    ).cast_column("audio", Audio()).save_to_disk(tmp_path / "clips")
    stored: Any = load_from_disk(tmp_path / "clips")
    files = sorted(tmp_path.rglob("*"))
    for kind in (None, "numpy", "torch"):  # a user's own format changes nothing
        table = stored.with_format(kind)
        for source in (make_source(table), make_source(table.to_iterable_dataset())):
            found = [sample for _, sample in source.open(0)]
            assert found == rows
            assert [clips.describe(s, AudioConfig())["rate"] for s in found] == [24_000] * 4
    assert sorted(tmp_path.rglob("*")) == files  # no second copy of all recordings


def test_what_is_no_dataset_is_said():
    for data, said in (
        ((s for s in samples()), "a generator, and samples are read anew in each epoch"),
        (iter(samples()), "a list_iterator, .*from_generator"),
        (None, "a NoneType"),
        (3, "a int"),
        (
            DatasetDict({"train": Dataset.from_list([{"text": "a"}])}),
            r'of train; .*dataset\["train"\]',
        ),
    ):
        with pytest.raises(InputError, match=said):
            make_source(data)
    with pytest.raises(InputError, match="sample 0 of the dataset is a tuple, should be a dict"):
        list(make_source([("a.wav", "its words")]).open(0))


def test_a_dataset_with_a_bad_shard_goes_on(tmp_path):
    files = write_shards(tmp_path, 2)
    streamed = load_dataset("webdataset", data_files=files, split="train", streaming=True)
    Path(files[1]).write_bytes(Path(files[1]).read_bytes()[:20_000])
    source, skipped = make_source(streamed), Counter()
    assert [len(list(source.open(n, skipped=skipped))) for n in range(2)] == [2, 1]
    assert skipped == {"broken shard": 1}


def test_set_epoch_is_called_on_an_iterable_and_its_order_kept():
    class Shuffled:
        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self):
            order = np.random.default_rng(self.epoch).permutation(9).tolist()
            return iter([{"__key__": str(i)} for i in order])

    stream = SampleStream(make_source(Shuffled()), 0, shuffle_buffer=100)
    for epoch in range(3):
        keys = []
        while (got := stream.take()) is not None:
            keys.append(int(got[1]["__key__"]))
        stream.advance()
        assert keys == np.random.default_rng(epoch).permutation(9).tolist()
