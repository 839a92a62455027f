"""Loudspeakers: the optional sounddevice and PortAudio, where they and a device are there."""

from __future__ import annotations

from typing import Any

import numpy as np

from nanospeech.errors import BackendError, require

from .editing import SAMPLE_RATE


def player() -> Any | None:
    """The optional sounddevice module if it and an output device are there, else None."""
    return None if no_player() else require("sounddevice")


def no_player() -> str:
    """Why nothing can be played here and what to do about it; empty if something can."""
    try:
        require("sounddevice", "play").query_devices(kind="output")
    except BackendError as e:
        return str(e)
    except OSError as e:  # its wheels for Linux come without PortAudio
        return f"{e}; on Debian and Ubuntu: apt install libportaudio2"
    except Exception as e:  # PortAudioError, ValueError: there is no device
        return f"no loudspeakers: {e}"
    return ""


def play(wave: np.ndarray, sample_rate: int = SAMPLE_RATE) -> bool:
    """Plays a wave to its end; False where nothing can play."""
    if (device := player()) is None:
        return False
    device.play(np.clip(wave, -1, 1), sample_rate)
    device.wait()
    return True
