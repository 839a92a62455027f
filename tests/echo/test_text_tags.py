"""Tags in texts of an encoder that does not know them: the network has vectors of its own."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from nanospeech import Speaker
from nanospeech.engine.text_states import without_tags
from nanospeech.errors import InputError
from nanospeech.latent_architectures import TEXT_TAG, EchoConfig, TextEncoderConfig
from nanospeech.load import load_engine
from nanospeech.text.pieces import PieceTokenizer
from tests.conftest import tone

from . import tiny
from .test_text_encoder import encoder_folder
from .test_text_encoder import folder as plain_folder  # noqa: F401

TAGS = ("<laugh>", "[in a whisper]")
LAUGH, WHISPER = TEXT_TAG, TEXT_TAG + 1
TAGGED = dataclasses.replace(tiny.SCALED, text_tags=TAGS)
both_backends = pytest.mark.parametrize("backend", ["torch", "mlx"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tags")
    encoder_folder(made / "text_encoder", "t5gemma2")
    encoder = TextEncoderConfig(kind="t5gemma2")
    return tiny.write(made, TAGGED, tiny.seeded(tiny.network_shapes(TAGGED)), text_encoder=encoder)


def states(engine, text_BT):
    with engine.context():
        read = engine.array(text_BT >= 0)
        found = engine.dit.text_states(engine.text_input(text_BT), read, engine.array(text_BT))
        return engine.numpy(found)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """A tokenizer as language models have it: spaces within pieces, and ids around a text."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["▁oh", "▁no", ",", ".", "▁", "l", "a", "u", "g", "h", "<", ">", "o", "n"]
    vocab = {w: i for i, w in enumerate(["<unk>", "<bos>", "<eos>", *words])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, "<unk>"))
    model = json.loads(model.to_str())
    model["model"] = {
        "type": "Unigram", "unk_id": 0, "byte_fallback": False,
        "vocab": [[w, -1.0 if len(w) > 1 else -3.0] for w in vocab],
    }  # fmt: skip
    model["pre_tokenizer"] = {
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True
    }  # fmt: skip
    path = tmp_path_factory.mktemp("pieces") / "tokenizer.json"
    path.write_text(json.dumps(model))
    model = tokenizers.Tokenizer.from_file(str(path))
    model.post_processor = tokenizers.processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    model.save(str(path))
    return path


@pytest.mark.parametrize(
    ("text", "without", "tokens"),
    [
        ("Oh <laugh> no.", "Oh no.", "bos ▁oh LAUGH ▁no . eos"),
        ("<laugh> oh no", "oh no", "bos LAUGH ▁oh ▁no eos"),
        ("oh no. <laugh>", "oh no.", "bos ▁oh ▁no . LAUGH eos"),
        ("oh <laugh>, no", "oh, no", "bos ▁oh LAUGH , ▁no eos"),
        ("oh<laugh>no", "oh no", "bos ▁oh LAUGH ▁no eos"),
        ("oh <laugh> [in a whisper]<laugh> no", "oh no", "bos ▁oh LAUGH WHISPER LAUGH ▁no eos"),
        ("<laugh>", "", "bos LAUGH eos"),
        ("oh no", "oh no", "bos ▁oh ▁no eos"),
    ],
)
def test_a_tag_stands_where_it_was_and_the_rest_is_the_text_without_it(
    sentences, text, without, tokens
):
    plain, tagged = PieceTokenizer(sentences), PieceTokenizer(sentences, TAGS)
    ids = tagged.encode(text.lower())
    assert ids[ids < TEXT_TAG].tolist() == plain.encode(without.lower()).tolist()
    names = {LAUGH: "LAUGH", WHISPER: "WHISPER"}
    named = [names.get(i) or plain.model.id_to_token(i).strip("<>") for i in ids.tolist()]
    assert named == tokens.split()


def test_other_brackets_are_text(sentences):
    plain, tagged = PieceTokenizer(sentences), PieceTokenizer(sentences, TAGS)
    for text in ("oh <ha> no", "oh <laug> no", "oh [no] <", "oh laugh no"):
        assert tagged.encode(text).tolist() == plain.encode(text).tolist()


def test_what_is_no_tag_is_refused(sentences):
    for tag in ("laugh", "<>", "<a  b>"):
        with pytest.raises(InputError, match="cannot be a tag"):
            PieceTokenizer(sentences, [tag])
    for wrong, said in (
        ({"text_input": 8, "text_tags": ["<a>", "<a>"]}, "each tag once"),
        ({"text_input": 8, "text_tags": [3]}, "each tag once"),
        ({"text_depth": 2, "text_tags": ["<a>"]}, "vocabulary of this one"),
    ):
        with pytest.raises(InputError, match=said):
            EchoConfig(**wrong)


def test_tags_are_cut_out_and_each_id_is_found_again():
    text = np.array([[LAUGH, 5, 6, WHISPER, 7, -1], [8, LAUGH, -1, -1, -1, -1], [LAUGH] * 6])
    ids, places, there = without_tags(text)
    assert ids.tolist() == [[5, 6, 7, -1, -1, -1], [8, -1, -1, -1, -1, -1], [0, -1, -1, -1, -1, -1]]
    known = (text >= 0) & (text < TEXT_TAG)
    assert np.array_equal(ids[places][known], text[known]) and there[known].all()
    assert ids[places][0, 3] == 6 and not there[0, 0] and not there[2].any()
    torch = pytest.importorskip("torch")
    other, columns, found = without_tags(torch.from_numpy(text))
    assert np.array_equal(other, ids) and np.array_equal(found, there)
    assert all(np.array_equal(x, y) for x, y in zip(columns, places))


@both_backends
def test_states_are_those_of_the_text_without_tags_and_the_tags_own(folder, backend):
    engine = load_engine(folder, backend, dtype="float32")
    found = states(engine, np.array([[LAUGH, 3, 4, WHISPER, 3, -1], [4, 4, 3, 4, 3, 3]]))
    plain = states(engine, np.array([[3, 4, 3, -1, -1, -1], [4, 4, 3, 4, 3, 3]]))
    assert np.abs(found[0, [1, 2, 4]] - plain[0, :3]).max() <= 1e-5
    assert np.abs(found[1] - plain[1]).max() <= 1e-5
    weights = tiny.seeded(tiny.network_shapes(TAGGED))
    weights = {n.removeprefix("transformer."): w for n, w in weights.items()}
    with engine.context():
        read = engine.numpy(engine.text_input(np.array([[3, 4, 3]])))[0, 1]
    # before all else, and behind the second token
    for place, tag, state in ((0, 0, 0 * read), (3, 1, read)):
        own = state @ weights["text_proj.weight"].T + weights["text_proj.bias"]
        own = own + weights["text_tag.weight"][tag]
        own = own / np.sqrt(np.square(own).mean() + TAGGED.eps) * weights["text_norm.weight"]
        assert np.abs(found[0, place] - own).max() <= 1e-5


@both_backends
def test_a_tag_is_heard_the_same_in_both_backends_and_in_a_batch(folder, backend):
    engine, i = load_engine(folder, backend, dtype="float32"), tiny.echo_inputs()
    text = np.array([[3, LAUGH, 4, -1], [LAUGH, LAUGH, -1, -1]])
    given = i["x"], i["speaker"], text, i["t"]
    v = engine.velocity(*given)
    assert np.isfinite(v).all()
    for row, length in enumerate((3, 2)):
        alone = [a[row : row + 1] for a in given]
        alone[2] = alone[2][:, :length]
        assert np.abs(engine.velocity(*alone) - v[row]).max() <= 1e-4
    for other in ([3, 4, -1, -1], [3, WHISPER, 4, -1], [LAUGH, 3, 4, -1]):
        changed = np.array([other, text[1]])
        assert np.abs(v - engine.velocity(*given[:2], changed, given[3]))[0].max() > 1e-3
    twin = load_engine(folder, "mlx" if backend == "torch" else "torch", dtype="float32")
    assert np.abs(v - twin.velocity(*given)).max() <= 1e-4 * np.abs(v).max()


def test_kept_states_serve_a_text_with_tags_and_without(folder, tmp_path):
    engine, i = load_engine(folder, "torch", dtype="float32"), tiny.echo_inputs()
    given = i["x"], i["speaker"], np.array([[3, LAUGH, 4], [3, 4, -1]]), i["t"]
    fresh = engine.velocity(*given)
    engine.cache_texts(tmp_path / "states")
    assert np.abs(fresh - engine.velocity(*given)).max() <= 1e-5
    assert len(list((tmp_path / "states").rglob("*.npy"))) == 1


@both_backends
def test_ids_are_those_of_the_encoder_whatever_the_network_has(plain_folder, backend):  # noqa: F811
    few = dataclasses.replace(tiny.SCALED, text_vocab=3)  # which is for encoders of its own
    config = json.loads((plain_folder / "config.json").read_text())
    config["echo"] = dataclasses.asdict(few)
    (plain_folder / "config.json").write_text(json.dumps(config))
    engine, i = load_engine(plain_folder, backend, dtype="float32"), tiny.echo_inputs()
    given = i["x"], i["speaker"]
    assert np.isfinite(engine.velocity(*given, np.array([[79, 4]] * 2), i["t"])).all()
    for wrong, said in ((80, "has 0 to 79"), (TEXT_TAG, f"0 to {TEXT_TAG - 1}")):
        with pytest.raises(InputError, match=said):
            engine.velocity(*given, np.array([[wrong, 4]] * 2), i["t"])


def test_a_speaker_says_tags_and_names_those_that_the_model_lacks(folder):
    engine = load_engine(folder, "torch", dtype="float32")
    engine.encode = lambda wave: np.ones((20, 12), np.float32)  # it has no codec
    speaker = Speaker(engine, ref_audio=tone(1.0), ref_text="one two", seed=1)
    (part,) = speaker.parts("Hello <laugh> there.")
    assert part.text == "Hello <laugh> there."
    assert speaker.chunk(part.text, 1).tokens.tolist() == [3, LAUGH, 4, 2]
    said = r"cannot say <sigh>: it knows <laugh>, \[in a whisper\].* train \(echo.text_tags"
    with pytest.raises(InputError, match=said):
        speaker.parts("Hello <sigh> there.")
