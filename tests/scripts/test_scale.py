"""Scale: the page's table is what the script prints, and its assumptions can be changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.benchmarks import scale

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


@pytest.mark.parametrize("wrong", ["--efficiency=0", "--efficiency=50", "--far=0", "--far=-1"])
def test_shares_and_speeds_that_there_cannot_be_are_refused(capsys, wrong):
    assert scale.main([wrong]) == 2
    assert wrong.partition("=")[0] in capsys.readouterr().err


def test_the_page_has_the_scripts_table(capsys):
    assert scale.main([]) == 0
    printed = capsys.readouterr().out
    assert printed in PAGE.read_text(encoding="utf-8")


def test_slower_products_and_links_give_other_figures(capsys):
    tables = []
    for options in ([], ["--efficiency", "0.4"], ["--far", "5"]):
        assert scale.main(options) == 0
        tables.append(capsys.readouterr().out.splitlines())
    plain, slow, far = ([row.split("|") for row in table[2:]] for table in tables)
    for before, after in zip(plain, slow):
        assert int(after[8]) > int(before[8]) and before[5:8] == after[5:8]
    assert any(int(after[9]) > int(before[9]) for before, after in zip(plain, far))
