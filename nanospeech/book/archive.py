"""Archive: members of a ZIP file from anywhere, read within bounds and never written to a disk.

Declared sizes are checked first and not trusted: decompression stops at the bound as well.
"""

from __future__ import annotations

import posixpath
import struct
import unicodedata
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nanospeech.errors import InputError

MIB = 1 << 20
LARGEST_FILE = 1024 * MIB
LARGEST_DIRECTORY = 8 * MIB  # bytes of the central directory, which are read at once
MOST_MEMBERS = 20_000
LARGEST_MEMBER = 16 * MIB
LARGEST_TOTAL = 512 * MIB  # decompressed, of all that is read of one archive
LARGEST_RATIO = 200  # decompressed to compressed; text reaches about 10
SMALL = 64 * 1024  # bytes that may have any ratio
BLOCK = 64 * 1024
UTF_8 = 0x800  # flag of a member whose name is in UTF-8
END, END_BYTES = b"PK\x05\x06", 22  # of the archive
LOCATOR_64, END_64_BYTES = b"PK\x06\x07", 56 + 20  # of ZIP64's end, and both of them


class Archive:
    """A ZIP file, open for reading.

    Raises:
        InputError: it is none, or beyond the bounds.
    """

    def __init__(self, path: str | Path):
        self.path, self.taken = Path(path), 0
        try:
            self._check_directory()
            self.zip = zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, OSError, ValueError, struct.error) as e:
            raise InputError(f"cannot read {path}: it is no EPUB, or a damaged one ({e})") from e
        infos = self.zip.infolist()
        if len(infos) > MOST_MEMBERS:
            raise InputError(f"{path} holds {len(infos)} files; at most {MOST_MEMBERS} are read")
        # some archivers of Windows write backslashes; nothing is ever written under these names
        files = (info for info in infos if not info.is_dir())
        self.members = {info.filename.replace("\\", "/"): info for info in files}
        self.alike = {alike(info): info for info in self.members.values()}

    def _check_directory(self) -> None:
        """Bounds what zipfile would read into memory at once."""
        size = self.path.stat().st_size
        if size > LARGEST_FILE:
            raise InputError(
                f"{self.path} has {size / MIB:.0f} MiB; at most {LARGEST_FILE // MIB} are read"
            )
        with self.path.open("rb") as f:
            f.seek(max(0, size - END_BYTES - 65_535 - END_64_BYTES))
            tail = f.read()
        # where zipfile looks for it: at the end, else before a comment
        at = len(tail) - END_BYTES
        if tail[at : at + 4] != END or tail[-2:] != b"\0\0":
            at = tail.rfind(END)
        if at < 0:
            raise zipfile.BadZipFile("it has no directory")
        directory = struct.unpack_from("<I", tail, at + 12)[0]
        if tail[max(0, at - 20) : at].startswith(LOCATOR_64):  # which goes before, whatever is told
            directory = struct.unpack_from("<Q", tail, at - END_64_BYTES + 40)[0]
        if directory > LARGEST_DIRECTORY:
            raise InputError(
                f"{self.path} has a directory of {directory} bytes; at most {LARGEST_DIRECTORY}"
                " are read"
            )

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def _find(self, name: str) -> zipfile.ZipInfo | None:
        return self.members.get(name) or self.alike.get(spelled(name))

    def read(self, name: str, most: int = LARGEST_MEMBER) -> bytes:
        """A member's bytes.

        Raises:
            InputError: it is missing, damaged, encrypted, or larger than `most` bytes or than the
                bounds of this module.
        """
        info = self._find(name)
        if info is None:
            raise InputError(f"{self.path.name} has no {name}")
        if info.flag_bits & 1:
            raise InputError(f"{name} is encrypted")
        if info.file_size > most:
            raise InputError(f"{name} has {info.file_size} bytes; at most {most} are read")
        self._check_ratio(name, info.file_size, info.compress_size)
        data = bytearray()
        try:
            with self.zip.open(info) as f:
                while block := f.read(BLOCK):
                    data += block
                    self.taken += len(block)
                    if len(data) > most or self.taken > LARGEST_TOTAL:
                        raise InputError(
                            f"{name} has more than {len(data) - 1} bytes; at most {most} of a file"
                            f" and {LARGEST_TOTAL} of a book are read"
                        )
                    self._check_ratio(name, len(data), info.compress_size)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            NotImplementedError,
            RuntimeError,
        ) as e:
            raise InputError(f"{name} is damaged ({e})") from e
        return bytes(data)

    def _check_ratio(self, name: str, size: int, compressed: int) -> None:
        if size > SMALL and size > LARGEST_RATIO * max(1, compressed):
            raise InputError(
                f"{name} grows from {compressed} to {size} bytes or more; at most"
                f" {LARGEST_RATIO} times are read"
            )


def alike(info: zipfile.ZipInfo) -> str:
    """A member's name in the one spelling of spelled(); UTF-8 is known without its flag, too."""
    name = info.filename
    if not info.flag_bits & UTF_8:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return spelled(name.replace("\\", "/"))


def spelled(name: str) -> str:
    """A name without what differs between systems: its case, its accents and what is escaped."""
    return unicodedata.normalize("NFC", unquote(name)).casefold()


def resolve(base: str, href: str) -> tuple[str, str]:
    """The member that a link within a book leads to, and the place in it.

    Args:
        base: name of the member that the link is in.
        href: such as "../text/one.xhtml#start".

    Returns:
        The member's name and the fragment; "" for a name that is outside of the archive.
    """
    try:
        parts = urlsplit(href)
    except ValueError:
        return "", ""
    if parts.scheme or parts.netloc:
        return "", ""
    path = unquote(parts.path)
    if path.startswith("/"):  # the archive's own root
        base, path = "", path.lstrip("/")
    name = posixpath.normpath(posixpath.join(posixpath.dirname(base), path)) if path else base
    outside = name.startswith(("/", "../")) or name == ".." or "\\" in name or "\0" in name
    return ("" if outside else name), unquote(parts.fragment)
