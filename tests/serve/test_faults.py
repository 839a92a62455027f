"""Faults of the server's own, and texts that it refuses: what is told, and what is counted."""

from __future__ import annotations

from tests.serve.conftest import speech

WORDS = {"Anna": "AA1 N AH0"}


def test_a_lexicon_of_the_servers_own_that_is_wrong_is_a_fault_without_its_path(
    server, user_data, caplog
):
    assert speech(server, lexicon=WORDS).status_code == 400  # the model has no phonemes
    user_data.mkdir(parents=True, exist_ok=True)
    (user_data / "lexicon.txt").write_text("no tab", encoding="utf-8")
    answer = speech(server, lexicon=WORDS)
    error = answer.json()["error"]
    assert answer.status_code == 500 and error["param"] == "lexicon"
    assert str(user_data) not in answer.text and "tab" not in answer.text
    assert str(user_data / "lexicon.txt") in caplog.text
