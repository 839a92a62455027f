"""Files and folders that are whole or not there: written under another name, then renamed."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nanospeech.errors import InputError, reason

# Windows' names of devices, whatever stands behind a dot
DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?", re.I | re.S)


def is_device(name: str) -> bool:
    """Whether Windows takes a file's name for that of a device: what is written there is lost.

    So no system's files are called so, as folders are copied from one to another.
    """
    return DEVICE.fullmatch(name) is not None


def is_of_mac(path: str | Path) -> bool:
    """Whether a file is what a Mac adds to another in archives and on other disks: ._NAME."""
    return os.path.basename(path).startswith("._")


def check_apart(read: Iterable[str | Path | None], written: Iterable[str | Path | None]) -> None:
    """
    Raises:
        InputError: what is read would be written over.
    """
    there = [path for path in written if path and os.path.exists(path)]
    for source in filter(os.path.isfile, filter(None, read)):
        if any(os.path.samefile(source, path) for path in there):
            raise InputError(f"{source} is read, and would be written over; name another output")


@contextmanager
def whole(path: Path, several: bool = False, sync: bool = False) -> Iterator[Path]:
    """Gives a name to write under, which becomes `path` when the block ends without an error.

    Args:
        path: what is there is replaced, and stays until then.
        several: whether other processes may write the same file at once, each under its own name.
        sync: whether the file is on the disk before it is renamed.

    A device or a pipe, as /dev/null, is written to: renaming would put a file in its place.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / path.name
            yield part
            with part.open("rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
        return
    own = f".{os.getpid()}" if several else ""
    part = path.with_name(f".{path.name}{own}.part")
    try:
        yield part
        if sync:
            with part.open("rb+") as f:
                os.fsync(f.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Gives an empty folder, which becomes `path` when the block ends without an error.

    Where `path` is a link, so is it then: what it leads to is replaced.

    Raises:
        InputError: it is where a disk is mounted.
    """
    path = Path(os.path.realpath(path))
    if os.path.ismount(path):
        raise InputError(f"a disk is mounted at {path}, which is replaced: name a folder within it")
    part, old = (path.with_name(f".{path.name}.{kind}") for kind in ("part", "old"))
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        shutil.rmtree(old, ignore_errors=True)
        try:
            if path.is_dir():
                path.rename(old)
            part.rename(path)
        except BaseException:  # Ctrl-C; on Windows also while something reads the new files
            if old.is_dir() and not path.exists():
                old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def merged_folder(path: Path) -> Iterator[Path]:
    """Gives an empty folder, whose files come into `path` when the block ends without an error.

    Other files of `path` stay. It lies within `path`, which may be a file system of its own.
    """
    new, part = not path.exists(), path / ".part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        for file in sorted(f for f in part.rglob("*") if f.is_file()):
            target = path / file.relative_to(part)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if new and not any(path.iterdir()):
            path.rmdir()


def replace_all(new: Mapping[Path, Path], old: Iterable[Path]) -> None:
    """Gives files their names, and removes those of an older set whose names are not among these.

    Args:
        new: names by where the files are.
        old: the older set.

    Raises:
        KeyboardInterrupt: of a Ctrl-C meanwhile, when all is done: two sets would be mixed.
    """

    def rename() -> None:
        for part, path in new.items():
            if part.exists():
                os.replace(part, path)
        for path in set(old) - set(new.values()):
            path.unlink(missing_ok=True)

    try:
        rename()
    except KeyboardInterrupt:
        rename()
        raise


def drop_cut_line(path: Path, columns: Sequence[str]) -> None:
    """Removes the last line of a CSV that rows are appended to, where it was cut off.

    Nothing of a file that does not begin with these columns: it was named by mistake.
    """
    data, head = path.read_bytes(), ",".join(columns).encode()
    if not data.endswith(b"\n") and data[: len(head)] == head[: len(data)]:
        path.write_bytes(data[: data.rfind(b"\n") + 1])


def write_json(path: Path, values: Any, indent: int | None = 1) -> None:
    """Writes values as UTF-8 JSON, whole or not at all."""
    text = json.dumps(values, indent=indent, ensure_ascii=False) + "\n"
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")


def read_text(path: Path) -> str:
    """A text in UTF-8.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        mend = "; save it as UTF-8" if isinstance(e, UnicodeDecodeError) else ""
        raise InputError(f"cannot read {path}: {reason(e)}{mend}") from e
