"""A page of players shows names and texts as they are, whatever signs are in them."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from nanospeech.evaluate.pages import cell, literal
from nanospeech.publish.listen import html_table
from nanospeech.publish.listen import main as listen

NAME = "Zoë #1 (50%) a|b <i>"
TEXT = "- I *said* <and> # A&amp;B_c_d ~~no~~ [x](y)."


class Page(HTMLParser):
    """The attributes of a page's tags, and its text."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.said += data

    def all(self, name: str) -> list[str]:
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def in_folder(folder: Path, address: str) -> Path:
    """The file that a browser would read."""
    return folder / unquote(urlsplit(address).path)


def test_odd_names_and_texts_are_shown_and_their_files_found(tiny_release, tmp_path):
    pytest.importorskip("matplotlib", reason="it is of the extra eval")
    model = Path(shutil.copytree(tiny_release, tmp_path / "model"))
    for suffix in (".wav", ".txt"):
        (model / f"voices/tone{suffix}").rename(model / f"voices/{NAME}{suffix}")
    (texts := tmp_path / "texts").write_text(TEXT + "\n", encoding="utf-8")
    out = tmp_path / "to hear"
    argv = ["--model", str(model), "--texts", str(texts), "--out", str(out), "--backends", "torch"]
    assert listen(argv) == 0
    page = Page((out / "index.html").read_text(encoding="utf-8"))
    assert TEXT in page.said and NAME in page.said
    files = [in_folder(out, address) for address in page.all("src")]
    assert len(files) == 3 and all(f.is_file() for f in files)
    (mark,) = page.all("aria-labelledby")
    assert mark in page.all("id") and not re.search(r"\s", mark)
    beside = (tmp_path / "to hear.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+\.(?:mp3|html|png))\)", beside)
    assert len(links) == 4 and all(in_folder(tmp_path, link).is_file() for link in links)
    assert f"1. {literal(TEXT)}\n" in beside and f"| {cell(literal(NAME))} |" in beside


def test_only_a_page_of_its_own_is_replaced(tiny_release, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="it is of the extra eval")
    out, beside = tmp_path / "page", tmp_path / "page.md"
    argv = ["--model", str(tiny_release), "--out", str(out), "--backends", "torch"]
    out.mkdir()
    (song := out / "song.mp3").write_text("mine")
    assert listen(argv) == 2 and song.read_text() == "mine"
    (out / "index.html").write_text("<!DOCTYPE html>\n<title>My songs</title>")
    assert listen(argv) == 2 and song.read_text() == "mine"
    assert "would be lost" in capsys.readouterr().err
    shutil.rmtree(out)
    beside.write_text("# My notes\n")
    assert listen(argv) == 2 and beside.read_text() == "# My notes\n"
    beside.unlink()
    for _ in range(2):
        assert listen(argv) == 0 and beside.is_file() and (out / "tone-prompt.mp3").is_file()


def test_signs_of_markdown_are_escaped_and_others_are_not():
    escaped = literal(TEXT)
    assert escaped.startswith("\\-") and re.sub(r"\\(.)", r"\1", escaped) == TEXT
    assert not re.search(r"(?<!\\)[*_<>\[\]#&~]", escaped)
    assert literal("It's 9:30, isn't it? (Yes.)") == "It's 9:30, isn't it? (Yes.)"
    table = f"| | WER |\n|---|---|\n| {cell('a|b')} | 1 % |"
    assert "<th scope='row'>a|b</th><td>1 %</td>" in html_table(table, "")
