"""What the pages of audio players say of voices, texts, backends and figures; their pictures."""

from __future__ import annotations

import html
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.audio.mel import log_mel
from nanospeech.errors import BackendError, InputError
from nanospeech.load import load_engine
from nanospeech.publish import listen
from nanospeech.publish.listen import Spoken, alike, check_replaceable, markdown, page, read_tables
from tests.conftest import needs

TEXTS = ["One & two.", "Three."]
BACKENDS = ["torch", "mlx"]
TABLE = "| | WER |\n|---|--:|\n| anna | 1 % |\n| ben | 2 % |"
OTHER = TABLE.replace("WER", "SIM")
RNG = np.random.default_rng(0)


class Nested(HTMLParser):
    """Makes sure that each tag is closed, and in it what it holds."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def noise(samples: int = 24_000) -> np.ndarray:
    return (0.1 * RNG.standard_normal(samples)).astype(np.float32)


@pytest.fixture
def voices() -> list[Spoken]:
    """Two, of which MLX's waves of the second text are a little off."""
    found = []
    for name in ("anna", "ben b"):
        waves = {(i, b): noise() for i in range(2) for b in BACKENDS}
        for i in range(2):
            waves[i, "mlx"] = waves[i, "torch"] + np.float32(0.25 * i)
        types = dict.fromkeys(BACKENDS, "float32")
        found.append(Spoken(name, noise(36_000), f"I am {name}.", f"{name}, CC0", waves, types))
    return found


def test_how_far_the_backends_waves_are_apart(voices):
    (voice, _), far = voices, "The backends' waves differ by at most 2.5e-01 (full scale is 1)"
    assert alike(voice, 2, BACKENDS) == f"{far}."
    assert alike(voice, 1, BACKENDS) == f"{far}.".replace("2.5e-01", "0.0e+00")
    assert alike(voice, 2, ["torch"]) == ""
    voice.types["mlx"] = "bfloat16"
    assert alike(voice, 2, BACKENDS) == f"{far}: PyTorch in float32, MLX in bfloat16."
    voice.waves[1, "mlx"] = voice.waves[1, "mlx"][:-1]
    assert alike(voice, 2, BACKENDS) == "The backends' waves have different lengths."


def test_the_page_has_a_player_of_each_prompt_text_and_backend(voices):
    made = page(voices, TEXTS, BACKENDS, [TABLE, OTHER], 7)
    assert Nested(made)
    sections = re.findall(r"<section aria-labelledby=.*?</section>", made, re.S)
    assert len(sections) == 2
    for voice, section in zip(voices, sections, strict=True):
        name = voice.name.replace(" ", "%20")
        files = [f"{name}-prompt", *(f"{name}-{i}-{b}" for i in (1, 2) for b in BACKENDS)]
        assert re.findall(r'<audio [^>]*src="(.*?)\.mp3"', section) == files
        assert re.findall(r'href="(.*?)\.mp3"', section) == files
        spoken = [f"{voice.name} by {b}: “{t}”" for t in TEXTS for b in ("PyTorch", "MLX")]
        names = [html.unescape(found) for found in re.findall(r'aria-label="(.*?)"', section)]
        assert names == [f"The prompt of {voice.name}: “{voice.words}”", *spoken]
        assert f"<p class='soft'>{voice.about}</p>" in section
        assert f'src="{name}.png"' in section and "differ by at most" in section
        assert section.count("<div class='row'>") == 2
    assert "unedited: seed 7" in made and made.count("<table>") == 2 == made.count("Means over")
    cells = re.findall(r"<t[hd].*?</t[hd]>", made)[:6]
    assert cells[:2] == ["<th scope='col'>voice</th>", "<th scope='col'>WER</th>"]
    assert cells[2:4] == ["<th scope='row'>anna</th>", "<td>1 %</td>"]
    assert cells[4:6] == ["<th scope='row'>ben</th>", "<td>2 %</td>"]
    assert "Figures" not in page(voices, TEXTS, BACKENDS, [], 7)


def test_the_page_for_github_has_a_link_to_each(voices):
    lines = markdown("a b", voices, TEXTS, BACKENDS, [TABLE, OTHER], 7).splitlines()
    assert lines[:2] == ["# Listen", ""] and "seed 7" in lines[3]
    assert "[a b/index.html](a%20b/index.html)" in lines[5]
    begin = lines.index("The texts:")
    heads = ["voice", "prompt", "1, PyTorch", "1, MLX", "2, PyTorch", "2, MLX"]
    head = "| " + " | ".join(heads) + " |"
    assert lines[begin + 1 : begin + 5] == ["", "1. One \\& two.", "2. Three.", ""]
    assert lines[begin + 5 : begin + 7] == [head, "|---" * 6 + "|"]
    for voice, line in zip(voices, lines[begin + 7 : begin + 9], strict=True):
        files = ["prompt", "1-torch", "1-mlx", "2-torch", "2-mlx"]
        at = voice.name.replace(" ", "%20")
        links = [f"[listen](a%20b/{at}-{f}.mp3)" for f in files]
        assert line == "| " + " | ".join([voice.name, *links]) + " |"
    first = lines.index("## anna")
    assert lines[first + 2] == "Prompt: “I am anna.” anna, CC0"
    assert lines[first + 4].endswith("](a%20b/anna.png)")
    assert lines[first + 6] == alike(voices[0], 2, BACKENDS)
    assert lines[first + 8] == "## ben b"
    figures = ["## Figures", "", *TABLE.splitlines(), "", *OTHER.splitlines()]
    assert lines[-len(figures) - 1 :] == ["", *figures]
    voices[0].about = ""
    alone = markdown("a", voices[:1], TEXTS[:1], ["torch"], [], 7).splitlines()
    assert alone[-3:-1] == ["Prompt: “I am anna.”", ""]
    assert alone[-1].endswith("](a/anna.png)")


def test_tables_of_evaluations_and_one_without(tmp_path):
    for name, text in (("a", f"# A\n\n{TABLE}\n\nMore.\n"), ("b", "none"), ("c", "x | y")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.md").write_text(text)
    assert read_tables([tmp_path / "a"]) == [TABLE]
    with pytest.raises(InputError) as error:
        read_tables([tmp_path / name for name in "abc"])
    assert str(error.value).endswith(f"summary.md of {tmp_path / 'b'}, {tmp_path / 'c'}")


def test_voices_are_read_with_words_and_licence_the_default_first(tiny_release, tmp_path):
    model = Path(shutil.copytree(tiny_release, tmp_path / "model"))
    for name in ("zoe", "anna"):
        for suffix in (".wav", ".txt"):
            shutil.copy(model / f"voices/tone{suffix}", model / f"voices/{name}{suffix}")
    (model / "voices/zoe.license.txt").write_text("CC0,\nhttps://zoe.example\n")
    found = listen.read_voices(model)
    assert [v.name for v in found] == ["tone", "anna", "zoe"]
    assert [v.about for v in found] == ["", "", "CC0, zoe.example"]
    words = (model / "voices/tone.txt").read_text().strip()
    wave, _ = sf.read(model / "voices/tone.wav")
    assert {v.words for v in found} == {words} and len(found[0].prompt) == len(wave)
    shutil.rmtree(model / "voices")
    with pytest.raises(InputError, match=r"model has no voices/"):
        listen.read_voices(model)


def test_the_picture_has_the_mels_of_the_prompt_and_of_the_first_text(
    voices, tmp_path, monkeypatch
):
    plt = pytest.importorskip("matplotlib.pyplot", reason="it is of the extra eval")
    image = pytest.importorskip("PIL.Image")
    drawn, close = [], plt.close
    monkeypatch.setattr(plt, "close", lambda figure: (drawn.append(figure), close(figure)))
    listen.picture(tmp_path / "a.png", voices[0], BACKENDS)
    ((figure,), mels) = drawn, [log_mel(voices[0].prompt)]
    mels += [log_mel(voices[0].waves[0, b]) for b in BACKENDS]
    titles = ["anna: the prompt", "PyTorch", "MLX"]
    for axis, title, mel in zip(figure.axes, titles, mels, strict=True):
        assert axis.get_title(loc="left") == title and axis.get_ylabel() == "mel band"
        (shown,) = axis.images
        assert np.array_equal(shown.get_array(), mel.T) and shown.origin == "lower"
        assert shown.get_extent() == [0, len(mel) / 93.75, 0, 100]
        assert axis.get_xlim() == (0, len(mels[0]) / 93.75)
        assert axis.get_xlabel() == ("seconds" if axis is figure.axes[-1] else "")
    assert not plt.get_fignums()
    picture = image.open(tmp_path / "a.png")
    assert picture.size == (600, 360) and len(picture.getcolors()) <= listen.COLOURS


def test_a_backend_that_is_not_there_is_left_out(voices, tiny_release, monkeypatch, capsys):
    needs("torch")

    def load(model, backend):
        if backend != "torch":
            raise BackendError("not installed")
        return load_engine(model, backend=backend)

    monkeypatch.setattr(listen, "load_engine", load)
    with pytest.raises(BackendError, match="none of onnx, mlx is installed"):
        listen.speak(voices, tiny_release, TEXTS, ["onnx", "mlx"], 1)
    left_out = [f"left out: {name}: not installed" for name in ("onnx", "mlx")]
    assert capsys.readouterr().err.splitlines() == left_out
    needed = [Spoken("tone", noise(), "", "")]
    assert listen.speak(needed, tiny_release, ["Hi."], ["mlx", "torch"], 1) == ["torch"]
    assert capsys.readouterr().out == "tone: PyTorch\n" and [*needed[0].waves] == [(0, "torch")]
    assert needed[0].types.keys() == {"torch"}
    argv = ["--model", str(tiny_release), "--backends", "torch", "none", "--out", "not/there"]
    assert listen.main(argv) == 2
    assert "backend 'none' not known; choose from " in capsys.readouterr().err

    def missing():
        raise BackendError("no matplotlib")

    monkeypatch.setattr(listen, "pyplot", missing)  # told before anything is spoken
    monkeypatch.delattr(listen, "speak")
    assert listen.main(["--model", str(tiny_release), "--out", "not/there"]) == 2
    assert capsys.readouterr().err == "error: no matplotlib\n"


def test_what_names_no_folder_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for out in (Path(), tmp_path / "file"):
        with pytest.raises(InputError, match="names no folder"):
            check_replaceable(out)
    check_replaceable(tmp_path / "new")


def test_a_page_that_is_too_large_to_keep_is_told(tmp_path, monkeypatch, capsys):
    for size, warned in ((3_000_000, False), (3_000_001, True)):
        monkeypatch.setattr(listen, "run", lambda args, size=size: size)
        assert listen.main(["--out", "page"]) == 0
        said = capsys.readouterr()
        assert said.out == "wrote page/index.html and page.md, 3.00 MB in all\n"
        assert ("over 3 MB" in said.err) == warned == bool(said.err)
