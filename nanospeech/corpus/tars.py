"""Tars: how members of WebDataset shards are named, and headers whose damage is told."""

from __future__ import annotations

import posixpath
import tarfile
from typing import Any

MOST_NAMING = 2**16  # bytes of what tells of another member, such as a long name
MOST = 2**36  # bytes of a member
# that nothing follows, whatever size some programs write: that of what a link leads to
EMPTY = (
    tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE,
    tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE,
)  # fmt: skip


class Header(tarfile.TarInfo):
    """A member's header; a damaged or missing one is an error, which tarfile takes for the end.

    So is one whose size cannot be: tarfile would go back to it for ever, read on behind the end of
    a stream until so much had come, or hold a name of gigabytes.
    """

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> Any:
        return super().frombuf(buf, encoding, errors).checked()

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Any:
        try:
            return super().fromtarfile(tarfile_).checked()  # whose size a pax header may replace
        except tarfile.HeaderError as e:
            if isinstance(e, getattr(tarfile, "EOFHeaderError", ())):
                raise
            raise tarfile.ReadError(f"{e}, at byte {tarfile_.offset}") from e

    def checked(self) -> Header:
        """Itself, if its size can be that of a member."""
        most = MOST if self.isreg() else MOST_NAMING
        if self.type not in EMPTY and not 0 <= self.size <= most:
            raise tarfile.ReadError(f"a header tells of {self.size:,} bytes")
        return self


def split_name(name: str) -> tuple[str, str]:
    """Key and extension of a member: the file's name is cut at its first dot.

    Folders stay part of the key, as clips of two of them may have one name; ".." and the root do
    not, so that a key is never a way out of a folder. Hidden files have no extension and so belong
    to no sample: a Mac's tar writes ._KEY.mp3 before KEY.mp3.
    """
    folder, base = posixpath.split(name.replace("\\", "/"))
    stem, _, kind = base.partition(".")
    parts = [p for p in folder.split("/") if p not in ("", ".", "..")]
    return "/".join([*parts, stem]), kind.lower() if stem else ""
