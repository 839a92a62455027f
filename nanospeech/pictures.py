"""Pictures: matplotlib without a window. Draws nothing."""

from __future__ import annotations

from typing import Any

from nanospeech.errors import require


def pyplot() -> Any:
    """matplotlib.pyplot, drawing to files alone.

    Raises:
        BackendError: matplotlib is not installed.
    """
    require("matplotlib", "eval").use("Agg")
    from matplotlib import pyplot as plt

    return plt
