"""A server of the default voice, pages of it in a real browser, and what tests ask of them.

Needs Playwright and Debian's chromium (or another, named by CHROMIUM); without them all is skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.conftest import serve  # noqa: F401

ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")

# What is played, as the loudspeakers get it, and whether the request was still running then.
LISTEN = """
window.heard = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (at) {
  window.heard.push({ samples: Array.from(this.buffer.getChannelData(0).slice(0, 2e5)),
    rate: this.buffer.sampleRate, complete: made.done });
  return start.apply(this, arguments);
};
window.lit = [];
new MutationObserver(() => {
  const word = document.querySelector('#said .now');
  if (word && window.lit.at(-1) !== word.textContent) window.lit.push(word.textContent);
}).observe(document, { subtree: true, attributes: true, childList: true });
"""


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """A server of the default voice, in a process of its own."""
    for package in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package)
    home = tmp_path_factory.mktemp("home")
    argv = ["serve", "--port", "0", "--allow-voices"]
    server = subprocess.Popen(
        [sys.executable, "-m", "nanospeech", *argv],
        cwd=ROOT,
        env=os.environ | {"NANOSPEECH_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = server.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found, said + server.stderr.read()
        yield found[0]
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one by CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--mute-audio"]
        )
        yield found
        found.close()


@pytest.fixture
def opened(browser):
    """opened(address) -> the page of a server, with what is heard, seen and complained of."""
    context = browser.new_context(accept_downloads=True)

    def open_page(address: str):
        found = context.new_page()
        found.complaints = []
        found.on("console", lambda m: m.type == "error" and found.complaints.append(m.text))
        found.on("pageerror", lambda e: found.complaints.append(str(e)))
        found.add_init_script(LISTEN)
        found.set_default_timeout(20_000)
        found.goto(address)
        until(found, "document.querySelector('#voice').options.length > 0")
        return found

    yield open_page
    context.close()


@pytest.fixture
def page(opened, address):
    return opened(address)


def until(page, expression: str) -> None:
    """Waits for an expression; wait_for_function needs eval, which the policy forbids."""
    for _ in range(400):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never: {expression}; {page.locator('main').inner_text()}")


def say(page, text: str) -> None:
    """Has the page speak a text."""
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Speak").click()


def download(page, button: str, folder: Path) -> Path:
    with page.expect_download() as found:
        page.get_by_role("button", name=button).click()
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    return path
