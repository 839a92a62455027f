"""The page of audio players in the manual, in a real browser."""

from __future__ import annotations

import pytest

from .conftest import ROOT


@pytest.mark.parametrize("width", [360, 1280])
def test_each_player_has_a_name_of_its_own_and_all_fits(browser, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    requests = []
    page.on("request", lambda r: requests.append(r.url))
    page.goto((ROOT / "docs/listen/index.html").as_uri())
    names = page.eval_on_selector_all("audio", "(all) => all.map((e) => e.ariaLabel)")
    assert len(names) > 20 and len(set(names)) == len(names)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert all(url.startswith(ROOT.as_uri()) for url in requests)
    page.close()
