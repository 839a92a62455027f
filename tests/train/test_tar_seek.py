"""Going on in a tar reads what is wanted, and little else."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nanospeech_torch.train.data.order import SampleStream
from nanospeech_torch.train.data.sources import TarSource

SIZE, COUNT = 100_000, 200


@pytest.fixture(scope="module")
def shard(tmp_path_factory) -> Path:
    """20 MB: 200 samples of two files each, among folders, repeated keys and a long name."""
    path = tmp_path_factory.mktemp("shards") / "a.tar"
    rng = np.random.default_rng(0)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for n in range(COUNT):
            if n % 7 == 0:
                folder = tarfile.TarInfo(f"folder{n}")
                folder.type = tarfile.DIRTYPE
                tar.addfile(folder)
            key = "same" if n in (20, 21) else f"é{'x' * 120}{n}" if n % 5 == 0 else f"{n:04d}"
            for kind, data in (("json", b'{"n": %d}' % n), ("bin", rng.bytes(SIZE))):
                info = tarfile.TarInfo(f"{key}.{kind}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def test_any_samples_are_found_as_by_reading_all(shard, tmp_path):
    source = TarSource([shard])
    every = dict(source.open(0))
    assert len(every) == COUNT and every[21]["json"] == b'{"n": 21}'
    for wanted in ({0}, {20, 21}, {5, 105, 199}, {7, 500}):
        assert dict(source.pick(0, wanted)) == {n: every[n] for n in wanted if n in every}
    for start in (1, 20, 21, 105, 199, 200):
        assert dict(source.open(0, start)) == {n: s for n, s in every.items() if n >= start}
    small = TarSource([shard], largest=SIZE)
    assert dict(small.pick(0, {3})) == dict(small.open(0, 3)) == {}
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(shard.read_bytes(), 0))
    assert dict(TarSource([packed]).pick(0, {3, 100})) == {n: every[n] for n in (3, 100)}
    assert dict(TarSource([packed]).open(0, 190)) == dict(source.open(0, 190))


def test_damaged_tars_give_what_they_gave(shard, tmp_path):
    data = bytearray(shard.read_bytes())
    cut, spoiled = tmp_path / "cut.tar", tmp_path / "spoiled.tar"
    cut.write_bytes(data[: len(data) // 2])
    middle = len(data) // 2
    data[middle : middle + 150_000] = b"\xff" * 150_000
    spoiled.write_bytes(data)
    for path in (cut, spoiled):
        source, skipped = TarSource([path]), Counter()
        every = dict(source.open(0, skipped=skipped))
        assert 50 < len(every) < 110 and skipped == {"broken shard": 1}
        wanted = {3, 50, 150}
        assert dict(source.pick(0, wanted)) == {n: every[n] for n in wanted if n in every}
        for start in (40, 150):
            skipped = Counter()
            rest = dict(source.open(0, start, skipped=skipped))
            assert rest == {n: s for n, s in every.items() if n >= start}
            assert skipped == {"broken shard": 1}


def read_so_far() -> int:
    """Bytes that this process has read from files."""
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no /proc/self/io")
def test_going_on_reads_the_samples_it_holds_and_no_more(shard):
    stream = SampleStream(TarSource([shard]), shuffle_buffer=10)
    for _ in range(150):
        stream.take()
    place = stream.place()
    want = [taken[0] for _ in range(30) if (taken := stream.take())]
    begun = read_so_far()
    again = SampleStream(TarSource([shard]), shuffle_buffer=10, place=place)
    held = read_so_far() - begun
    found = [taken[0] for _ in range(30) if (taken := again.take())]
    assert found == want and len(want) == 30
    samples = len(place.pending())
    print(f"{held:,} bytes of {shard.stat().st_size:,} for {samples} samples")
    assert held < samples * SIZE + COUNT * 3 * 2048
