"""Unknown: what to do about a data set of no layout that is read. Opens no audio."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from nanospeech.errors import InputError

from .published import TRANSCRIPT
from .samples import files_in, recordings_in, words_beside
from .tables import has_bars

TABLE = re.compile(r"\.(csv|tsv|jsonl|list)$|manifest.*\.json$", re.I)
PACKED = re.compile(r"\.(zip|7z|rar|tgz|gz|bz2|xz|zst)$", re.I)
SUBTITLES = ".srt", ".vtt"
MOST_NAMED = 9  # tables in a message
MOST_OPENED = 20  # texts that may be tables with bars


def why_unknown(path: Path) -> str:
    """What is wrong with a data set of no layout, and what to do."""
    files = sorted(files_in(path)) if path.is_dir() else [path]
    if found := [p for p in files if p.suffix.lower() in (".parquet", ".arrow")]:
        return (
            f"{found[0]} is a table of Hugging Face's datasets, which is not read: write its"
            " recordings to files, with a table metadata.csv beside them, as docs/training.md"
            " shows, and give their folder"
        )
    if path.is_dir() and (found := recordings_in(path)):
        beside = (words_beside(p, kind) for p in found for kind in SUBTITLES)
        if timed := next(filter(None, beside), None):
            return (
                f"{path} has recordings with subtitles, such as {timed.name}, which are not read:"
                f" nanospeech prepare cut {path} --out clips hears where the words are and cuts"
                f" there; or write the words alone to {timed.with_suffix('.txt').name}"
            )
        elsewhere = in_tables(files) or (
            "they lie elsewhere, name the layout by the --layout of nanospeech prepare shards"
        )
        return (
            f"{path} has recordings ({len(found)}) without their words: write what is said in"
            f" {found[0].name} to {found[0].with_suffix('.txt').name} beside it, and so on, or all"
            f" of it to a table, metadata.csv with the columns audio,text; or, if {elsewhere}"
        )
    if packed := [p for p in files if PACKED.search(p.name)]:
        return f"{packed[0]} is packed: unpack it, as by tar xf or unzip, and give the folder in it"
    if tars := sorted({str(p.parent / "*.tar") for p in files if p.suffix.lower() == ".tar"}):
        return f"shards lie in folders of {path}: give these instead: {' '.join(tars)}"
    return (
        f"cannot tell the layout of {path}: it should be a .csv or .jsonl manifest, a .tar or a "
        f"folder of them, or a folder with metadata.csv, *{TRANSCRIPT} or X.txt beside X.wav; or "
        "name it by the --layout of nanospeech prepare shards"
    )


def in_tables(files: Sequence[Path]) -> str:
    """Which of a folder's files may be tables of what is said in its recordings."""
    texts = islice((p for p in files if p.suffix.lower() == ".txt"), MOST_OPENED)
    with_bars = {p for p in texts if is_table(p)}
    tables = [str(p) for p in files if TABLE.search(p.name) or p in with_bars]
    if len(tables) < 2:
        return f"this table has their words, give it instead: {tables[0]}" if tables else ""
    more = len(tables) - MOST_NAMED
    named = " ".join(tables[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"these tables have their words, one or each of a part, give them instead: {named}"


def is_table(path: Path) -> bool:
    """Whether a text is a table with bars."""
    with suppress(InputError):
        return has_bars(path)
    return False
