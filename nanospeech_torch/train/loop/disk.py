"""Disk: files and folders of a run that are on the disk when a function returns, or are gone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
    sync(path)


def sync(path: Path) -> None:
    """Syncs a file, or a folder's entries, to disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no such thing
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def discard(path: Path) -> None:
    """Deletes a file or folder; a half-deleted one is never taken for a checkpoint.

    Of a link, as to a checkpoint that was moved to another disk, the link alone.
    """
    if path.is_symlink() or not path.is_dir():
        return path.unlink()
    trash = path.with_name(path.name + ".old.part")
    shutil.rmtree(trash, ignore_errors=True)
    os.rename(path, trash)
    shutil.rmtree(trash)
