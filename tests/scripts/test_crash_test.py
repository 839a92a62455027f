"""A run that is killed again and again ends with the bits of one that was left alone."""

from __future__ import annotations

import json
import os

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork")
def test_kills_leave_no_trace():
    """Six of them; by itself the script makes fifty."""
    from tests.forked import Forked, finish, module

    words = ["scripts.experiments.crash_test", "--kills", "6", "--steps", "16"]
    found = json.loads(finish([Forked(module, *words, env={})]).splitlines()[-1])
    assert found["kills"] == 6 and found["inside_a_save"] >= 1
    assert found["went_on"] >= 2  # from a checkpoint, which a slow machine must have reached first
    assert found["different"] == {} and found["went_back"] == []
