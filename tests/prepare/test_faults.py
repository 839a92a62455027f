"""Faults of recordings and names: each is counted by its reason, and none ends a command."""

import csv
import io
import resource
import shutil
import sys

import pytest
import soundfile as sf

from nanospeech.corpus import mp3
from nanospeech.prepare import shards

from .test_shards import WAV, tone


def test_a_header_that_tells_more_than_fits_the_memory_is_a_reason():
    file = io.BytesIO()
    sf.write(file, tone(), 24_000, format="FLAC")
    content = bytearray(file.getvalue())
    content[21] |= 0x0F  # the upper bits of the number of samples: 2 ** 36 of them
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**37, limits[1]))  # bytes, wherever this runs
    try:
        with pytest.raises(mp3.BadAudio) as failed:
            mp3.decode(bytes(content))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert failed.value.args[0] == "unreadable audio"
    assert "more than fits the memory" in failed.value.args[1]


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 there")
def test_a_name_that_is_no_utf8_is_listed(tmp_path):
    """As files of an archive of another system have it; here one that cannot be used."""
    folder, out = tmp_path / "recordings", tmp_path / "shards"
    folder.mkdir()
    for name in ("good", "caf\udce9"):  # a byte E9, as Python has it in names
        (folder / f"{name}.txt").write_text("Good morning.")
    shutil.copy(WAV, folder / "good.wav")
    (folder / "caf\udce9.wav").touch()
    assert shards.main([str(folder), "--out", str(out), "--jobs", "1"]) == 0
    with (out / "skipped.csv").open(encoding="utf-8", newline="") as f:
        assert [row["name"] for row in csv.DictReader(f)] == [r"caf\udce9"]
