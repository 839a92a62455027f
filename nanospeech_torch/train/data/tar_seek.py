"""Tar seek: samples in the midst of a local tar, found by its headers. Decodes nothing.

A resumed run needs a few samples in the middle of shards. In a local tar the other samples are
skipped from header to header, without reading them.
"""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

Member = tuple[int, str, str, tarfile.TarInfo]  # number of its sample, key, kind, header


def members(tar: tarfile.TarFile, split_name: Callable[[str], tuple[str, str]]) -> Iterator[Member]:
    """The files of an opened tar, each with its sample's number and key, and what it is of that."""
    index, group, kinds = -1, None, set()
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # else all are kept
        key, kind = split_name(member.name)
        if not member.isreg() or not kind:
            continue
        if key != group or kind in kinds:
            index, group, kinds = index + 1, key, set()
        kinds.add(kind)
        yield index, key, kind, member


@contextlib.contextmanager
def opened(path: str, header: type[tarfile.TarInfo]) -> Iterator[tarfile.TarFile]:
    """A local tar without compression; of anything else, tarfile's errors."""
    with (
        open(path, "rb", buffering=0) as file,
        tarfile.open(fileobj=file, mode="r:", tarinfo=header) as tar,
    ):
        yield tar


def offset_of(path: str, number: int, header: type[tarfile.TarInfo], split_name: Any) -> int:
    """The byte at which a sample begins; 0 where that is not known, as in a compressed tar."""
    try:
        with opened(path, header) as tar:
            for index, _, _, member in members(tar, split_name):
                if index == number:
                    return member.offset
    except Exception:  # a damaged header may raise anything; a full read reports it
        pass
    return 0


def pick(
    path: str, wanted: set[int], largest: int, header: type[tarfile.TarInfo], split_name: Any
) -> dict[int, dict]:
    """Samples of some numbers; those that are too big or not there are missing.

    Raises:
        Exception: of any kind; the tar is compressed, damaged or gone.
    """
    found: dict[int, dict] = {}
    left = dict.fromkeys(wanted, largest)
    with opened(path, header) as tar:
        for index, key, kind, member in members(tar, split_name):
            if index > max(wanted):
                break
            if index not in wanted:
                continue
            left[index] -= member.size
            if left[index] >= 0:
                sample = found.setdefault(index, {"__key__": key})
                sample[kind] = tar.extractfile(member).read()  # type: ignore[union-attr]
    return {index: sample for index, sample in found.items() if left[index] >= 0}
