"""soundfile's SoundFile, for which a Ctrl-C may come at any time."""

from __future__ import annotations

import soundfile


class SoundFile(soundfile.SoundFile):
    """Is closed once, also where a Ctrl-C comes as that is done.

    soundfile notes that a file is closed after libsndfile has freed it: what comes in between has
    its __del__ free it again, which aborts the process.
    """

    def close(self) -> None:
        try:
            super().close()
        except KeyboardInterrupt:
            self._file = None  # freed, or left to the end of the process
            raise
