"""Listen: a page of audio players made from a model: its voices, all backends, their pictures.

    nanospeech publish listen --evaluation eval --backends torch mlx
    nanospeech publish listen --model my_voice --out page --texts my_texts.txt

For each built-in voice: the recording that it is given as its prompt, and each text spoken by every
backend with the same seed. OUT/index.html works from the disk and needs nothing but the MP3s and
PNGs beside it. OUT.md is the same for GitHub, which shows no players in Markdown: it links to the
files. The tables are those of nanospeech evaluate.
"""

from __future__ import annotations

import argparse
import html
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.audio.mp3 import encode
from nanospeech.cli import Parser, command
from nanospeech.errors import BackendError, InputError, require
from nanospeech.evaluate.items import read_texts
from nanospeech.evaluate.pages import cell, literal
from nanospeech.files import read_text, whole_folder
from nanospeech.load import backend_names, installed, load_engine
from nanospeech.pictures import pyplot
from nanospeech.release.folder import load_config, resolve
from nanospeech.release.voices import own_voices
from nanospeech.speech.speaker import Speaker

TEXTS = (
    "Hello! I was trained from scratch, and I run on your own machine.",
    "The museum opens at 9:30, and bread is sold in the square.",
)
TITLES = {"torch": "PyTorch", "mlx": "MLX", "onnx": "ONNX Runtime"}
TITLE, HEADING = "nanospeech: listen", "# Listen"  # of the pages
COLOURS = 24  # of a picture: a quarter of the bytes
LIMIT = 3_000_000  # bytes of a page that is kept in a repository
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d7de; --soft: #57606a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --soft: #9198a1 }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 0 auto; padding: 1rem }
h2 { border-top: 1px solid var(--line); padding-top: 1rem }
.row { display: flex; flex-wrap: wrap; gap: 1rem }
.row figure { flex: 1 1 16rem; margin: 0 }
figure { margin: 1rem 0 }
p, figcaption { overflow-wrap: anywhere }
figcaption, .soft { color: var(--soft); font-size: .9rem }
audio { width: 100% }
img { max-width: 100%; height: auto; border: 1px solid var(--line); box-sizing: border-box }
.scroll { overflow-x: auto }
table { border-collapse: collapse }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: right }
th:first-child, td:first-child { text-align: left }
a { color: inherit }
"""


@dataclass
class Spoken:
    """One voice: its prompt, and each text by each backend.

    Attributes:
        about: the source and licence of the prompt, one line.
        waves: float32 (n,) at 24 kHz by (text number, backend).
        types: in which each backend computed.
    """

    name: str
    prompt: np.ndarray
    words: str
    about: str
    waves: dict[tuple[int, str], np.ndarray] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


def read_voices(model: Path) -> list[Spoken]:
    """The built-in voices of a release folder, the default one first.

    Raises:
        InputError: it has none.
    """
    default = load_config(model).default_voice
    found = []
    for _, path in sorted(own_voices(model).items()):
        license = path.with_name(f"{path.stem}.license.txt")
        about = " ".join(read_text(license).split()) if license.is_file() else ""
        about = about.replace("https://", "")  # a page has addresses to read, and none to load
        words = read_text(path.with_suffix(".txt")).strip()
        found.append(Spoken(path.stem, audio.read(path), words, about))
    if not found:
        raise InputError(f"{model} has no voices/, so there are no voices to listen to")
    return sorted(found, key=lambda v: v.name != default)


def speak(
    voices: Sequence[Spoken], model: Path, texts: Sequence[str], backends: Sequence[str], seed: int
) -> list[str]:
    """Fills in the waves; the backends that are there.

    Raises:
        BackendError: none is.
    """
    there = []
    for backend in backends:
        try:
            engine = load_engine(model, backend=backend)
        except BackendError as e:
            print(f"left out: {backend}: {e}", file=sys.stderr)
            continue
        there.append(backend)
        for voice in voices:
            speaker = Speaker(engine, voice=voice.name, seed=seed)
            voice.types[backend] = engine.dtype
            for i, text in enumerate(texts):
                spoken = speaker.speak(text)
                wave = audio.resample(spoken.wave, spoken.sample_rate, audio.SAMPLE_RATE)
                voice.waves[i, backend] = wave
            print(f"{voice.name}: {label(backend)}")
    if not there:
        raise BackendError(f"none of {', '.join(backends)} is installed")
    return there


def label(backend: str) -> str:
    """A backend's name as it is written."""
    return TITLES.get(backend, backend)


def picture(path: Path, voice: Spoken, backends: Sequence[str]) -> None:
    """Log mels of the prompt and of the first text, on one time axis each."""
    plt = pyplot()

    mels = {f"{voice.name}: the prompt": log_mel(voice.prompt)}
    mels |= {label(b): log_mel(voice.waves[0, b]) for b in backends}
    longest = max(map(len, mels.values())) / 93.75
    size = (8, 1.5 * len(mels) + 0.3)
    figure, axes = plt.subplots(len(mels), 1, figsize=size, sharex=True, constrained_layout=True)
    for axis, (title, mel) in zip(np.atleast_1d(axes), mels.items()):
        axis.imshow(
            mel.T, origin="lower", aspect="auto", vmin=-9, vmax=2, cmap="magma",
            extent=(0, len(mel) / 93.75, 0, mel.shape[1]),
        )  # fmt: skip
        axis.set(ylabel="mel band", xlim=(0, longest))
        axis.set_title(title, fontsize=9, loc="left")
    np.atleast_1d(axes)[-1].set_xlabel("seconds")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=75)
    plt.close(figure)
    few = require("PIL.Image", "eval").open(drawn).convert("RGB").quantize(COLOURS, dither=0)
    few.save(path, optimize=True)


def alike(voice: Spoken, texts: int, backends: Sequence[str]) -> str:
    """How far apart the waves of the backends are; nothing where there is only one."""
    if len(backends) < 2:
        return ""
    rows = [[voice.waves[i, b] for b in backends] for i in range(texts)]
    if any(len(wave) != len(row[0]) for row in rows for wave in row):
        return "The backends' waves have different lengths."
    far = max(float(np.ptp(row, axis=0).max()) for row in rows)
    apart = f"The backends' waves differ by at most {far:.1e} (full scale is 1)"
    types = [f"{label(b)} in {voice.types[b]}" for b in backends]
    return f"{apart}: {', '.join(types)}." if len(set(voice.types.values())) > 1 else f"{apart}."


def write_files(out: Path, voices: Sequence[Spoken], backends: Sequence[str]) -> None:
    """The MP3s and pictures."""
    for voice in voices:
        (out / f"{voice.name}-prompt.mp3").write_bytes(encode(voice.prompt))
        for (i, backend), wave in voice.waves.items():
            (out / f"{voice.name}-{i + 1}-{backend}.mp3").write_bytes(encode(wave))
        picture(out / f"{voice.name}.png", voice, backends)


def read_tables(folders: Sequence[Path]) -> list[str]:
    """The Markdown tables of evaluations.

    Raises:
        InputError: one has none.
    """
    texts = [read_text(folder / "summary.md") for folder in folders]
    tables = ["\n".join(t for t in text.splitlines() if t.startswith("|")) for text in texts]
    if empty := [str(f) for f, t in zip(folders, tables) if not t]:
        raise InputError(f"there is no table in the summary.md of {', '.join(empty)}")
    return tables


def html_table(markdown: str, caption: str) -> str:
    """A Markdown table as HTML."""
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in markdown.splitlines()]
    rows = [[html.escape(c.strip().replace("\\|", "|")) for c in r] for r in rows]
    head, body = rows[0], rows[2:]
    lines = [f"<table><caption class='soft'>{html.escape(caption)}</caption>", "<thead><tr>"]
    lines += [f"<th scope='col'>{c or 'voice'}</th>" for c in head]
    lines.append("</tr></thead><tbody>")
    for first, *rest in body:
        cells = "".join(f"<td>{c}</td>" for c in rest)
        lines.append(f"<tr><th scope='row'>{first}</th>{cells}</tr>")
    return "<div class='scroll' role='region' tabindex='0' aria-label='Evaluation'>" + "\n".join(
        [*lines, "</tbody></table></div>"]
    )


def player(src: str, caption: str, text: str = "") -> str:
    """A player; its name has the text, by which it is told from others of the same caption."""
    said, file = html.escape(caption, quote=True), quote(src)
    name = f"{said}: “{html.escape(text, quote=True)}”" if text else said
    return (
        f'<figure><figcaption>{said}</figcaption><audio controls preload="metadata" src="{file}" '
        f'aria-label="{name}"><a href="{file}">{said}</a></audio></figure>'
    )


def page(
    voices: Sequence[Spoken],
    texts: Sequence[str],
    backends: Sequence[str],
    tables: Sequence[str],
    seed: int,
) -> str:
    """index.html."""
    parts = []
    for v in voices:
        name, mark = html.escape(v.name), html.escape("-".join(v.name.split()))
        parts.append(f'<section aria-labelledby="{mark}"><h2 id="{mark}">{name}</h2>')
        parts.append(f"<p class='soft'>{html.escape(v.about)}</p>")
        caption = f"The prompt of {v.name}: “{v.words}”"
        parts.append(player(f"{v.name}-prompt.mp3", caption))
        for i, text in enumerate(texts):
            players = [
                player(f"{v.name}-{i + 1}-{b}.mp3", f"{v.name} by {label(b)}", text)
                for b in backends
            ]
            parts.append(f"<p>“{html.escape(text)}”</p><div class='row'>{''.join(players)}</div>")
        alt = f"Log mel spectrograms: the prompt of {name}, and the first text by each backend"
        note = alike(v, len(texts), backends)
        parts.append(
            f'<figure><img src="{quote(v.name)}.png" alt="{alt}" loading="lazy">'
            f"<figcaption>The prompt, and the first text. {note}</figcaption></figure></section>"
        )
    if tables:
        parts.append("<section><h2>Figures</h2>")
        parts += [html_table(t, "Means over the test sentences") for t in tables]
        parts.append("</section>")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{TITLE}</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>Listen</h1>
<p>Audio samples of every voice of one model. A prompt is the recording that gives the voice; the
line above it names its source. All other audio is synthetic and unedited: seed {seed}, the default
settings, and the same noise for all backends.</p></header>
<main>
{chr(10).join(parts)}
</main>
</body>
</html>
"""


def markdown(
    folder: str,
    voices: Sequence[Spoken],
    texts: Sequence[str],
    backends: Sequence[str],
    tables: Sequence[str],
    seed: int,
) -> str:
    """The same for GitHub."""
    near = quote(folder)
    lines = [
        HEADING,
        "",
        "Audio samples of every voice of the model, with the recording that is its prompt.",
        f"They are unedited: seed {seed}, the default settings, the same noise for all backends.",
        "GitHub shows no audio players in Markdown, so the links lead to MP3s. In a clone, open",
        f"[{literal(folder)}/index.html]({near}/index.html), which has players.",
        "",
        "The texts:",
    ]
    lines += [""] + [f"{i}. {literal(text)}" for i, text in enumerate(texts, 1)] + [""]
    head = [f"{i}, {label(b)}" for i in range(1, len(texts) + 1) for b in backends]
    lines += ["| " + " | ".join(["voice", "prompt", *head]) + " |", "|---" * (len(head) + 2) + "|"]
    for v in voices:
        files = [f"{v.name}-{i + 1}-{b}.mp3" for i in range(len(texts)) for b in backends]
        links = [f"[listen]({near}/{quote(f)})" for f in [f"{v.name}-prompt.mp3", *files]]
        lines.append("| " + " | ".join([cell(literal(v.name)), *links]) + " |")
    for v in voices:
        name = literal(v.name)
        alt = f"Log mel spectrograms of {name}: the prompt, and text 1 by each backend"
        note = alike(v, len(texts), backends)
        lines += ["", f"## {name}", "", f"Prompt: “{literal(v.words)}” {v.about}".rstrip(), ""]
        lines += [f"![{alt}]({near}/{quote(v.name)}.png)", *(["", note] if note else [])]
    for table in tables:
        lines += ["", "## Figures", "", table] if table is tables[0] else ["", table]
    return "\n".join(lines) + "\n"


def check_replaceable(out: Path) -> None:
    """
    Raises:
        InputError: the folder holds other files than such a page, or the file beside it is another;
            they would be lost.
    """
    if not out.name or (out.exists() and not out.is_dir()):
        raise InputError(f"--out is {out}, which names no folder to write")
    made = (".mp3", ".png", ".html") if begins(out / "index.html", "<!DOCTYPE", TITLE) else ()
    other = [p for p in out.iterdir() if p.suffix not in made] if out.exists() else []
    beside = out.with_name(out.name + ".md")
    if beside.exists() and not begins(beside, HEADING):
        other.append(beside)
    if other:
        raise InputError(f"{other[0]} would be lost: {out} is to be replaced; name another --out")


def begins(path: Path, start: str, there: str = "") -> bool:
    """Whether a file is text that begins so, and has some words near its beginning."""
    if not path.is_file():
        return False
    text = path.read_bytes()[:1000].decode(errors="replace")
    return text.startswith(start) and there in text


def run(args: argparse.Namespace) -> int:
    """Writes the page; its size in bytes."""
    texts = read_texts(args.texts) if args.texts else list(TEXTS)
    check_replaceable(args.out)
    known = backend_names()
    wanted = args.backends or [name for name in known if installed(name)]
    if unknown := [b for b in wanted if b not in known]:
        raise InputError(f"backend {unknown[0]!r} not known; choose from {', '.join(known)}")
    model, tables = resolve(args.model), read_tables(args.evaluation)
    voices = read_voices(model)
    pyplot()  # what is missing for the pictures is told before anything is spoken
    backends = speak(voices, model, texts, wanted, args.seed)
    content: tuple[Any, ...] = (voices, texts, backends, tables, args.seed)
    with whole_folder(args.out) as part:
        write_files(part, voices, backends)
        (part / "index.html").write_text(page(*content), encoding="utf-8")
    beside = args.out.with_name(args.out.name + ".md")
    beside.write_text(markdown(args.out.name, *content), encoding="utf-8")
    return sum(p.stat().st_size for p in [beside, *args.out.iterdir()])


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech publish listen", __doc__)
    p.add_argument("--model", help="release folder; default: the voices that ship")
    p.add_argument(
        "--out", type=Path, default=Path("docs/listen"), help="folder to replace (%(default)s)"
    )
    p.add_argument("--texts", type=Path, help="what to say, one a line (default: two sentences)")
    p.add_argument("--evaluation", nargs="+", type=Path, default=[], metavar="FOLDER",
                   help="of nanospeech evaluate, for the tables")  # fmt: skip
    names = f"of {', '.join(backend_names())} (default: all that are installed)"
    p.add_argument("--backends", nargs="+", metavar="NAME", help=names)
    p.add_argument("--seed", type=int, default=1, help="of the noise (1)")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    size = run(args)
    print(f"wrote {args.out}/index.html and {args.out}.md, {size / 1e6:.2f} MB in all")
    if size > LIMIT:
        hint = "fewer --backends, or fewer or shorter --texts, help"
        print(f"that is over {LIMIT / 1e6:g} MB: {hint}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
