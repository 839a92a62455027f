"""The work of an evaluation: speaks an utterance, or reads a recording, and measures it.

One Worker a process; what it needs it loads when it first needs it. Writes waves, no tables.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.config import SampleOptions
from nanospeech.errors import InputError, NanospeechError
from nanospeech.measure import metrics
from nanospeech.measure import wer as wer_text
from nanospeech.output import MEASURED
from nanospeech.workers import end_with_parent

from .items import Item, Prompt
from .results import Result

Recogniser = Callable[[np.ndarray], str]
KEPT = 16  # voices that a worker keeps ready


@dataclass(frozen=True)
class Settings:
    """What a worker needs to know. Fields are the flags of nanospeech evaluate."""

    wavs: Path
    metrics: tuple[str, ...]
    model: str | None = None
    backend: str = "auto"
    device: str | None = None
    dtype: str | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of SampleOptions
    speed: float = 1.0
    duration: float | str | None = None  # seconds, or their source
    whisper: str = "base"
    language: str = "en"  # that Whisper listens for
    reads: str | None = None  # the language that texts are read in; None: the model's
    beam: int = 5
    speaker_model: str = "resemblyzer"
    threads: int = 1
    target: np.ndarray | None = None  # mean embedding of --target


@dataclass(frozen=True)
class Task:
    """One utterance to speak and measure.

    Attributes:
        name: of its row: the voice, or what the recordings are called.
        steps: solver steps; None for a recording, which is the item's truth.
        voice: a built-in one; None for a prompt of its own.
        prompt: its recording and words; what similarity and leak go by.
        digest: of the prompt.
        before: what an earlier run measured of it.
    """

    name: str
    item: Item
    steps: int | None = None
    seed: int | None = None
    voice: str | None = None
    prompt: Prompt | None = None
    digest: str | None = None
    before: Result | None = None

    @property
    def id(self) -> tuple[str, int | None, int | None, str]:
        return self.name, self.steps, self.seed, self.item.key

    @property
    def file(self) -> Path:
        """Where its wave is kept, under wavs/."""
        folder = f"{self.name}-steps{self.steps}-seed{self.seed}"
        return Path(folder.replace("/", "_")) / f"{self.item.key}.wav"


class Worker:
    """Speaks and measures, one task after the other.

    Args:
        recogniser: maps a wave at 24 kHz to text; None loads Whisper.
    """

    def __init__(self, settings: Settings, recogniser: Recogniser | None = None):
        self.settings = settings
        self.recogniser = recogniser
        self.engine: Any = None
        self.encoder: metrics.Embed | None = None
        self.speakers: OrderedDict[Any, Any] = OrderedDict()
        self.prompts: dict[Prompt, np.ndarray] = {}

    def __call__(self, task: Task) -> Result:
        """Does a task.

        Raises:
            NanospeechError: it cannot be done; the message names the utterance.
        """
        try:
            return self.measure(task)
        except NanospeechError as e:
            raise type(e)(f"{task.name}, {task.item.key}: {e}") from e

    def measure(self, task: Task) -> Result:
        item, wanted = task.item, set(self.settings.metrics)
        result = replace(task.before) if task.before else Result(*task.id, item.text, task.digest)
        wave = self.wave(task, result)
        result.seconds = round(len(wave) / audio.SAMPLE_RATE, 4)
        wanted -= set(result.done.split())
        if wanted & {"wer", "leak"}:
            self.listen(task, result, wave)
        if "similarity" in wanted:
            self.compare(task, result, wave)
        if "dnsmos" in wanted:
            for name, value in metrics.dnsmos(wave).items():
                setattr(result, name, round(value, 4))
        if "duration" in wanted and task.steps is not None and item.truth is not None:
            result.spoken = spoken_seconds(wave)
            result.true_spoken = true = spoken_seconds(item.truth.wave())
            if true:
                result.duration_error = round(abs(result.spoken - true) / true, 4)
        result.done = " ".join(sorted({*result.done.split(), *self.settings.metrics}))
        return result

    def wave(self, task: Task, result: Result) -> np.ndarray:
        """The recording, the wave that was kept, or what is spoken now and kept."""
        if task.steps is None:
            if task.item.truth is None:
                raise InputError("it has no recording")
            return task.item.truth.wave()
        path = self.settings.wavs / task.file
        if task.before is None or not path.exists():
            duration = self.settings.duration
            seconds = None if isinstance(duration, str) else duration
            spoken = self.speaker(task).speak(task.item.text, seconds)
            result.compute_seconds = round(spoken.elapsed, 4)
            path.parent.mkdir(parents=True, exist_ok=True)
            audio.write(path, spoken.wave, spoken.sample_rate)
            path.with_suffix(".txt").write_text(task.item.text + "\n", encoding="utf-8")
        return audio.read(path)

    def speaker(self, task: Task) -> Any:
        """The task's voice, ready to speak."""
        from nanospeech.load import load_engine
        from nanospeech.speech.speaker import Speaker

        s = self.settings
        if self.engine is None:
            self.engine = load_engine(s.model, s.backend, s.device, s.dtype)
            if torch := sys.modules.get("torch"):
                torch.set_num_threads(s.threads)
        key = task.voice or task.prompt
        if key not in self.speakers:
            prompt = task.prompt
            reference: dict[str, Any] = {}
            if task.voice is None and prompt is not None:
                said = prompt.text or None
                reference = {"ref_audio": prompt.recording.source(), "ref_text": said}
            how = s.duration if isinstance(s.duration, str) else None
            reference |= {"duration": how, "output": replace(MEASURED, language=s.reads)}
            speaker = Speaker(self.engine, task.voice, speed=s.speed, seed=0, **reference)
            if not self.speakers:  # what is loaded or compiled at first is not measured
                speaker.speak("This sentence is not measured.")
            self.speakers[key] = speaker
            while len(self.speakers) > KEPT:
                self.speakers.popitem(last=False)
        speaker = self.speakers[key]
        options: dict[str, Any] = {**s.options, "steps": task.steps}
        speaker.use(SampleOptions(**options))
        speaker.seed = task.seed
        return speaker

    def listen(self, task: Task, result: Result, wave: np.ndarray) -> None:
        """Writes down what is heard, its errors, and what of the prompt is in it."""
        s = self.settings
        if self.recogniser is None:
            model = metrics.load_whisper(s.whisper, s.threads)
            self.recogniser = lambda w: metrics.transcribe(
                model, w, language=s.language, beam=s.beam
            )
        if result.heard is None:
            result.heard = self.recogniser(wave)
        text, heard = task.item.text, result.heard
        result.edits, result.words = wer_text.word_edits(text, heard, s.language)
        result.char_edits, result.chars = wer_text.char_edits(text, heard, s.language)
        if result.words:  # "Hmm." has none: what is heard in it counts in the whole alone
            result.wer = round(result.edits / result.words, 4)
            result.cer = round(result.char_edits / result.chars, 4)
        if task.steps is not None and task.prompt is not None and task.prompt.text:
            found = wer_text.leaked(text, heard, task.prompt.text, s.language)
            result.leaks, result.leaked = len(found), " ".join(found)

    def compare(self, task: Task, result: Result, wave: np.ndarray) -> None:
        """Similarity to the prompt and to the target; none for utterances that are too short."""
        if len(wave) < metrics.MIN_SECONDS * audio.SAMPLE_RATE:
            return
        if self.encoder is None:
            self.encoder = metrics.load_encoder(self.settings.speaker_model)
        heard = None if audio.is_silent(wave) else self.encoder(wave)
        for name, other in {
            "similarity": self.prompt_embedding(task.prompt),
            "target_similarity": self.settings.target,
        }.items():
            if other is not None:
                cosine = 0.0 if heard is None else float(heard @ other / np.linalg.norm(other))
                setattr(result, name, round(cosine, 4))

    def prompt_embedding(self, prompt: Prompt | None) -> np.ndarray | None:
        """Who a prompt sounds like; the same prompt is listened to once."""
        if prompt is None or self.encoder is None:
            return None
        if prompt not in self.prompts:
            self.prompts[prompt] = self.encoder(prompt.recording.wave())
        return self.prompts[prompt]


def spoken_seconds(wave: np.ndarray) -> float:
    """Seconds from the first sound to the last; 0 for silence."""
    if audio.is_silent(wave):
        return 0.0
    start, stop = audio.loud_span(wave, audio.SAMPLE_RATE)
    return round((stop - start) / audio.SAMPLE_RATE, 4)


WORKER: Worker | None = None


def start(settings: Settings) -> None:
    """Makes a process a worker."""
    import signal

    global WORKER
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    end_with_parent()
    WORKER = Worker(settings)


def work(task: Task) -> Result:
    """Does a task in a process that start() has made a worker."""
    assert WORKER is not None
    return WORKER(task)
