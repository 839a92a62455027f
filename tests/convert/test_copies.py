"""Copies: what lies beside a release's weights comes along, and nothing that is another model's."""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from convert import convert
from convert.__main__ import main
from convert.folder import copy_voices
from nanospeech.errors import InputError
from nanospeech.release.folder import VOCODER
from tests.echo.test_text_encoder import folder as folder
from tests.release.test_imitator import both as both
from tests.release.test_imitator import change
from tests.release.test_imitator_vocoder import own_vocoder as own_vocoder


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    found = sorted([folder, *folder.rglob("*")], reverse=True)
    try:
        for path in found:
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield
    finally:
        for path in found:
            path.chmod(0o755)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def can_be_written(out: Path) -> bool:
    return all(path.stat().st_mode & stat.S_IWUSR for path in out.rglob("*"))


def test_a_release_that_is_read_only_has_copies_that_are_not(tiny_release, tmp_path):
    """Whoever is not root could not move them to where they belong, nor convert there again."""
    source, bare, out = (tmp_path / n for n in ("source", "bare", "out"))
    shutil.copytree(tiny_release, source)
    shutil.copytree(tiny_release, bare)
    shutil.rmtree(bare / "voices")
    (source / "voices" / "more").mkdir()
    with read_only(source):
        voices = ["--voices", str(source / "voices")]
        for words in [source], [source, *voices], [bare, "--like", source]:
            assert main([*map(str, words), "--output", str(out)]) == 0
            assert {f.name for f in (out / "voices").glob("*.*")} == {"tone.wav", "tone.txt"}
            assert can_be_written(out)


def test_an_imitator_is_copied_with_its_own_vocoder(own_vocoder, tmp_path):
    with read_only(own_vocoder):
        convert(own_vocoder, tmp_path / "out")
    assert files(tmp_path / "out" / "imitator") == files(own_vocoder / "imitator")
    assert can_be_written(tmp_path / "out")


@pytest.mark.parametrize("name", ["voices", "imitator"])
def test_nothing_is_written_through_a_link(both, tmp_path, name):
    shared, out = tmp_path / "shared", tmp_path / "out"
    shutil.copytree(both[0] / name, shared)
    convert(both[0], out)
    shutil.rmtree(out / name)
    (out / name).symlink_to(shared)
    before = files(tmp_path)
    with pytest.raises(InputError, match=rf"{name} is a link to .*shared, .*remove the link"):
        convert(both[0], out)
    assert files(tmp_path) == before


def test_an_imitator_has_the_vocoder_that_its_model_cannot_lend(both, tmp_path):
    model = Path(shutil.copytree(both[0], tmp_path / "model"))
    change(model, vocoder=None)
    (model / VOCODER).unlink()
    convert(model, tmp_path / "out", imitator=both[1])
    assert (tmp_path / "out" / "imitator" / VOCODER).exists()


def test_of_a_teachers_voices_those_come_that_its_student_speaks(tmp_path):
    """Weights that a student has in its own would be added to them twice."""
    recordings = [f"{name}.{end}" for name in ("own", "plain") for end in ("wav", "txt")]
    (tmp_path / "voices").mkdir()
    for name in [*recordings, "own.safetensors", "own.json"]:
        (tmp_path / "voices" / name).write_text(name)
    of_own = {"own.wav", "own.txt", "own.json"}
    for number, (taught, weights, wanted) in enumerate(
        [
            ((), False, {"plain.wav", "plain.txt"}),
            (("own",), False, of_own),
            (("own",), True, {*of_own, "own.safetensors"}),
        ]
    ):
        (out := tmp_path / str(number)).mkdir()
        copy_voices(tmp_path, out, taught, weights)
        assert files(out / "voices").keys() == wanted


@pytest.mark.parametrize("option", [False, True])
def test_a_card_that_is_no_text_is_told(tiny_release, tmp_path, option):
    source, card = tmp_path / "source", tmp_path / "source" / "README.md"
    shutil.copytree(tiny_release, source)
    card.write_bytes("# Grüße\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"cannot read .*README\.md: .*save it as UTF-8"):
        convert(source, tmp_path / "out", card=card if option else None)
    assert not (tmp_path / "out").exists()


def test_a_text_encoder_is_copied_whole(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("copy") / "out"
    with read_only(folder):
        convert(folder, out)
    assert files(out / "text_encoder") == files(folder / "text_encoder")
    assert can_be_written(out)


def test_voices_that_are_named_come_without_another_models_weights_and_paces(
    tiny_release, tmp_path
):
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(tiny_release, source)
    (inner := source / "voices" / "more").mkdir()
    for voices in (source / "voices", inner):
        for name in ("a.safetensors", "a.json", "a.license.txt"):
            (voices / name).write_text("{}")
    convert(source, tmp_path / "again")
    assert files(tmp_path / "again" / "voices") == files(source / "voices")
    convert(source, out, voices=source / "voices")
    own = {n: data for n, data in files(source / "voices").items() if n.endswith((".wav", ".txt"))}
    assert files(out / "voices") == own and "more/a.license.txt" in own


@pytest.mark.parametrize("weights", [False, True])
def test_the_default_voice_of_the_release_that_lends_its_voices_is_the_models(
    tiny_release, tmp_path, weights
):
    bare, lends, out = (tmp_path / name for name in ("bare", "lends", "out"))
    for release in (bare, lends):
        shutil.copytree(tiny_release, release)
    shutil.rmtree(bare / "voices")
    change(bare, default_voice=None)
    for file in [*(lends / "voices").glob("tone.*")]:  # before tone in the alphabet
        shutil.copy(file, file.with_stem(file.stem.replace("tone", "another")))
    if weights:  # for the other network: that voice stays there
        (lends / "voices" / "tone.safetensors").touch()
    assert convert(bare, out, like=lends).default_voice == (None if weights else "tone")
    copied = {file.stem for file in (out / "voices").glob("*.txt")}
    assert {"another"} | (set() if weights else {"tone"}) == {n.split(".")[0] for n in copied}
