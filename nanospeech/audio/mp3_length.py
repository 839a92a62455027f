"""MP3s of varying bit rates without a header of their length, whose end libsndfile would cut off.

It reads as many samples as the size of the file tells at the first frame's rate. Encoders write a
frame named Xing before others that has the number of frames, unless they write into a pipe; here
one is written.
"""

from __future__ import annotations

MPEG1 = 3  # versions, as headers have them; others have half of the samples a frame
LAYER3 = 1
KBPS = {
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}
SAME = (0xFF, 0xFE, 0x0C, 0xC0)  # bits of a header that are those of all frames
BEGINNING = 40  # bytes of a first frame that tell whether it is Xing, or VBRI as others name it
MOST_LOST = 10_000  # bytes that might begin a frame and do not, before a file is left as it is


def with_length(data: bytes) -> bytes:
    """The bytes of an MP3 whose frames are counted, if nothing in it tells how many there are."""
    start = first_frame(data)
    first = data[start : start + BEGINNING]
    if not lacks_length(first):
        return data
    rates = bit_rates(data, start)
    if len(set(rates)) < 2:  # of one rate it is told well
        return data
    head = bytes((first[0], first[1] | 1, 9 << 4 | first[2] & 0x0C, first[3]))
    told = bytes(tag_offset(head) - 4) + b"Xing" + (1).to_bytes(4, "big")
    frame = (head + told + len(rates).to_bytes(4, "big")).ljust(frame_bytes(head), b"\0")
    return data[:start] + frame + data[start:]


def first_frame(start: bytes) -> int:
    """Where the first frame of a file is that starts so: behind a tag of ID3, if there is one."""
    if start[:3] != b"ID3":
        return 0
    return 10 + sum((byte & 127) << 7 * place for place, byte in enumerate(start[9:5:-1]))


def lacks_length(beginning: bytes) -> bool:
    """Whether this is an MP3's first frame, which does not tell how many there are."""
    if not frame_bytes(beginning):
        return False
    tag = beginning[tag_offset(beginning) :][:4], beginning[36:40]
    return tag[0] not in (b"Xing", b"Info") and tag[1] != b"VBRI"


def frame_bytes(header: bytes) -> int:
    """The size of the frame that a header begins; 0: it is none of layer III."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return 0
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    kbps, rate, padding = header[2] >> 4, header[2] >> 2 & 3, header[2] >> 1 & 1
    if version == 1 or layer != LAYER3 or kbps in (0, 15) or rate == 3:
        return 0
    bits = (144_000 if version == MPEG1 else 72_000) * KBPS[version == MPEG1][kbps]
    return bits // RATES[version][rate] + padding


def tag_offset(header: bytes) -> int:
    """Where in a frame Xing would be: behind the header and what follows it."""
    mono = header[3] >> 6 == 3
    if header[1] >> 3 & 3 == MPEG1:
        return 21 if mono else 36
    return 13 if mono else 21


def bit_rates(data: bytes, start: int) -> list[int]:
    """Those of all frames from a place on, as headers have them; what is between is passed over."""
    first, at, lost = data[start : start + 4], start, 0
    rates: list[int] = []
    while 0 <= at < len(data) and lost < MOST_LOST:
        header = data[at : at + 4]
        alike = all(a & bits == b & bits for a, b, bits in zip(header, first, SAME))
        if alike and (size := frame_bytes(header)):
            rates.append(header[2] >> 4)
            at += size
        else:
            lost, at = lost + 1, data.find(b"\xff", at + 1)
    return rates if lost < MOST_LOST else []
