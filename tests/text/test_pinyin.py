"""Pinyin: the ids that F5-TTS's own code makes, and what its vocabulary lacks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from nanospeech.errors import BackendError
from nanospeech.text.pinyin import pinyin_parts, pinyin_tokens
from nanospeech.text.sentences import encode, prepare
from nanospeech.text.tokenizer import Tokenizer

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "pinyin.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The published vocabulary, where the cases show it; other lines are called by their number."""
    pytest.importorskip("rjieba", reason="it is of the extra zh")
    vocab = [f"line {i}" for i in range(2545)]
    for case in CASES:
        for token, index in zip(case["tokens"], case["ids"]):
            if index or token == " ":
                vocab[index] = token
    return Tokenizer("pinyin", vocab)


@pytest.mark.parametrize("case", CASES, ids=[c["text"][:12] or "empty" for c in CASES])
def test_tokens_and_ids_are_those_of_f5(tokenizer, case):
    assert tokenizer.tokens(case["text"]) == case["tokens"]
    assert tokenizer.encode(case["text"]).tolist() == case["ids"]


def test_tones_are_those_of_the_word_and_run_on(tokenizer):
    assert tokenizer.tokens("银行行长") == [
        *(" ", "yin2", " ", "hang2"),
        *(" ", "hang2", " ", "zhang3"),
    ]
    assert tokenizer.tokens("一个") == [" ", "yi2", " ", "ge4"]
    assert tokenizer.tokens("你ü好") == [" ", "ni3", "ü", " ", "hao3"]


def test_what_the_vocabulary_lacks_becomes_the_filler_and_is_named(tokenizer):
    assert tokenizer.encode("a🙂").tolist() == [tokenizer.ids["a"], 0]
    assert tokenizer.unknown("a🙂龘") == {"🙂", "da2"}
    tagged = Tokenizer("pinyin", [*tokenizer.vocab, "<laugh>"])
    assert tagged.tokens("好<laugh>a") == [" ", "hao3", "<laugh>", "a"]
    assert tagged.encode("<laugh>").tolist() == [2545]


def test_chinese_text_is_prepared_without_rules_of_english(tokenizer):
    digits = Tokenizer("pinyin", [*tokenizer.vocab, *"25678"])
    assert prepare("我有2本书。", digits) == "我有2本书。"
    assert np.array_equal(encode("我叫张三", digits), [0, 1178, 0, 529, 0, 1329, 0, 980])


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(BackendError, match=r"pip install 'nanospeech-tts\[zh\]'"):
        Tokenizer("pinyin", [" ", "a"]).encode("a")


def test_parts_are_the_text_and_their_tokens_are_its_tokens():
    text = "你好 hello; F5模型。x 中a文"
    parts = pinyin_parts(text)
    assert "".join(part for part, _ in parts) == text
    assert [token for _, tokens in parts for token in tokens] == pinyin_tokens(text)
    assert ("好", [" ", "hao3"]) in parts
