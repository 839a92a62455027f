"""Licences: parts that allow no commercial use make the whole model so, once that is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from convert import convert
from convert.__main__ import main
from convert.kinds import KINDS
from convert.licence import ACCEPTED, card_licence, check_accepted, with_parts
from convert.options import ConvertOptions
from nanospeech.config import ModelConfig
from nanospeech.errors import InputError
from nanospeech.release.user_voices import data_folder


@pytest.mark.parametrize(
    "option, code",
    [
        ("average", "cc-by-nc-4.0"),
        ("vocoder", "cc-by-nc-4.0"),
        ("like", "fair-noncommercial-research-license"),
    ],
)
def test_a_part_without_commercial_use_is_asked_about_and_makes_the_whole_so(
    make_release, tmp_path, capsys, option, code
):
    one = make_release(text_upsampling="none", patch_size=2)
    convert(one, tmp_path / "theirs", licence=code)
    words = [str(one), "--output", str(tmp_path / "out"), f"--{option}", str(tmp_path / "theirs")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / "theirs") in error and "--accept-licence" in error
    assert not (tmp_path / "out").exists()
    assert main([*words, "--accept-licence"]) == 0
    assert ModelConfig.load(tmp_path / "out" / "config.json").licence == code
    assert "no commercial use" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert main([*words[:2], str(tmp_path / "stated"), *words[3:], "--licence", "mit"]) == 0
    assert ModelConfig.load(tmp_path / "stated" / "config.json").licence == "mit"


@pytest.mark.parametrize("option", ["average", "vocoder", "duration", "student", "codec", "like"])
def test_the_licence_of_a_model_is_its_own_but_for_parts_that_allow_less(tmp_path, option):
    def licence(own: str | None, theirs: str, **more) -> str | None:
        (tmp_path / "README.md").write_text(f"---\nlicense: {theirs}\n---\n")
        return with_parts(own, ConvertOptions(**{option: tmp_path}, **more))

    assert [licence(own, "mit") for own in (None, "apache-2.0")] == [None, "apache-2.0"]
    for own in (None, "mit", "cc-by-nc-sa-4.0"):
        with pytest.raises(InputError, match=r"published under cc-by-nc-4\.0"):
            licence(own, "cc-by-nc-4.0")
    taken = {own: licence(own, "cc-by-nc-4.0", accept_licence=True) for own in (None, "mit")}
    assert set(taken.values()) == {"cc-by-nc-4.0"}
    licence(None, "cc-by-nc-nd-4.0", accept_licence=True)  # which leaves what was accepted
    assert licence("cc-by-nc-sa-4.0", "cc-by-nc-4.0") == "cc-by-nc-sa-4.0"  # accepted before
    (others := tmp_path / "others").mkdir()
    (tmp_path / "README.md").rename(others / "README.md")
    with pytest.raises(InputError, match="published under"):  # which nobody accepted
        with_parts(None, ConvertOptions(**{option: others}))


def test_a_release_on_the_hub_is_asked_about_too(make_release, tmp_path, monkeypatch, capsys):
    one, theirs = make_release(text_upsampling="none", patch_size=2), tmp_path / "theirs"
    convert(one, theirs, licence="cc-by-nc-4.0")
    for place in ("nanospeech.release.folder", "convert.source"):
        monkeypatch.setattr(
            f"{place}.resolve", lambda model: theirs if model == "a/b" else Path(model)
        )
    assert main([str(one), "--output", str(tmp_path / "out"), "--average", "a/b"]) == 2
    assert "published under cc-by-nc-4.0" in capsys.readouterr().err


def test_terms_that_a_user_states_are_asked_about_where_the_weights_are_a_project_s(tmp_path):
    """Whoever publishes weights of their own states their terms, and need not accept them."""
    nc = ConvertOptions(licence="cc-by-nc-4.0")
    check_accepted(tmp_path, KINDS["nanospeech"], "cc-by-nc-4.0", nc)
    with pytest.raises(InputError, match="published under"):
        check_accepted(tmp_path, KINDS["f5-v1"], "cc-by-nc-4.0", nc)
    check_accepted(tmp_path, KINDS["f5-v1"], "apache-2.0", nc)


@pytest.mark.parametrize("damaged", ["[]", "{", ""])
def test_what_was_accepted_is_asked_about_again_where_it_cannot_be_read(tmp_path, damaged):
    (tmp_path / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    data_folder().mkdir(parents=True, exist_ok=True)
    (data_folder() / ACCEPTED).write_text(damaged)
    with pytest.raises(InputError, match="published under"):
        with_parts(None, ConvertOptions(vocoder=tmp_path))
    for accept in True, False:
        options = ConvertOptions(vocoder=tmp_path, accept_licence=accept)
        assert with_parts(None, options) == "cc-by-nc-4.0"


@pytest.mark.parametrize(
    "card, code",
    [
        ("---\nlanguage: en\nlicense: 'CC-BY-NC-4.0'\n---\n", "cc-by-nc-4.0"),
        ("---\nlanguage: en\n---\nlicense: mit\n", None),
        ("license: mit\n", None),
        ("---\nlicense:\n---\n", None),
        ("---\nlicense: mit\n---\n" + "x" * 1_000_000, None),  # no card of a person's
        ("", None),
    ],
)
def test_a_card_s_licence_is_that_of_its_front_matter(tmp_path, card, code):
    (tmp_path / "README.md").write_text(card)
    assert card_licence(tmp_path) == card_licence(tmp_path / "model.safetensors") == code
