"""Headers of MP3 frames (ISO 11172-3 and 13818-3), and the frame that tells how many there are."""

import pytest

from nanospeech.audio.mp3_length import MOST_LOST, frame_bytes, lacks_length, with_length

HEADERS = {
    "MPEG-1, 128 kbps, 44.1 kHz": (b"\xff\xfb\x90\x00", 417),
    "padded": (b"\xff\xfb\x92\x00", 418),
    "MPEG-1, 320 kbps, 32 kHz": (b"\xff\xfb\xe8\x00", 1440),
    "MPEG-2, 64 kbps, 24 kHz": (b"\xff\xf3\x84\x00", 192),
    "MPEG-2.5, 8 kbps, 8 kHz": (b"\xff\xe3\x18\x00", 72),
    "free bit rate": (b"\xff\xfb\x00\x00", 0),
    "free bit rate, padded": (b"\xff\xfb\x02\x00", 0),
    "no bit rate": (b"\xff\xfb\xf0\x00", 0),
    "no sampling rate": (b"\xff\xfb\x9c\x00", 0),
    "layer II": (b"\xff\xfd\x90\x00", 0),
    "no version": (b"\xff\xeb\x90\x00", 0),
    "no frame": (b"RIFF", 0),
    "cut off": (b"\xff\xfb\x90", 0),
}
STEREO, MONO = 0x00, 0xC0


@pytest.mark.parametrize("header, size", HEADERS.values(), ids=HEADERS)
def test_a_header_tells_its_frames_size(header, size):
    assert frame_bytes(header) == size


def frame(kbps: int, channels: int = MONO, first: int = 0xFB, padding: int = 0) -> bytes:
    """A frame of MPEG-1 at 44.1 kHz, by the number of its bit rate, which holds nothing."""
    head = bytes((0xFF, first, kbps << 4 | padding << 1, channels))
    return head.ljust(frame_bytes(head), b"\0")


@pytest.mark.parametrize("channels, offset", [(MONO, 21), (STEREO, 36)])
@pytest.mark.parametrize("tag", [b"Xing", b"Info"])
def test_what_lame_writes_tells_the_length(tag, channels, offset):
    bare = frame(9, channels)
    assert lacks_length(bare)
    assert not lacks_length(bare[:offset] + tag + bare[offset + 4 :])
    assert lacks_length(bare[: offset + 1] + tag + bare[offset + 5 :])


def test_what_fraunhofer_writes_tells_the_length():
    for channels in (MONO, STEREO):
        bare = frame(9, channels)
        assert not lacks_length(bare[:36] + b"VBRI" + bare[40:])


@pytest.mark.parametrize("channels, offset", [(MONO, 21), (STEREO, 36)])
def test_a_frame_that_counts_goes_before_those_of_several_rates(channels, offset):
    data = frame(9, channels, first=0xFA, padding=1) + frame(5, channels) + frame(14, channels)
    told = with_length(data)
    added = told[: len(told) - len(data)]
    assert told.endswith(data) and len(added) == 417
    assert added[:4] == bytes((0xFF, 0xFB, 0x90, channels))  # no checksum, and no padding
    assert added[offset:][:12] == b"Xing" + bytes((0, 0, 0, 1)) + bytes((0, 0, 0, 3))
    assert not lacks_length(told) and with_length(told) is told


def test_frames_of_other_channels_are_not_counted():
    """Such bytes are in the middle of a frame, by chance."""
    data = frame(9) + frame(5, STEREO) + frame(14)
    assert with_length(data)[32] == 2
    of_one_rate = frame(9) + frame(5, STEREO) + frame(9)
    assert with_length(of_one_rate) is of_one_rate


def test_a_file_with_too_much_between_its_frames_is_left_as_it_is():
    data = frame(9) + frame(5)
    between = b"\xff\x00" * (MOST_LOST - 2)
    assert with_length(data + between + frame(5)) != data + between + frame(5)
    between += 3 * b"\xff\x00"
    assert with_length(data + between) == data + between
