"""Speaker: a voice that speaks texts with a loaded engine, chunk by chunk. Needs no array library.

chunks.py sends chunks through the engine; streaming.py makes a stream's first chunks small;
batching.py groups many texts.
"""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, overload

import numpy as np

from nanospeech.arguments import number, whole
from nanospeech.audio import wave as audio
from nanospeech.audio.loudness import Leveller
from nanospeech.config import BatchLimits, SampleOptions
from nanospeech.errors import InputError, VoiceError
from nanospeech.output import OutputOptions
from nanospeech.release.prompt import MAX_REFERENCE, check_reference
from nanospeech.release.user_lexicon import tokenizer_of
from nanospeech.release.voices import VoiceSettings, default_voice, find_voice, warn_of_strangers
from nanospeech.text.left_out import LeftOut
from nanospeech.text.markup import Marked, Span, Style
from nanospeech.text.pauses import pause_after
from nanospeech.text.sentences import front_end
from nanospeech.text.written import Written

from . import batching, beginning, checks, script, streaming
from . import durations as lengths
from .batching import step_bar
from .chunks import CROSS_FADE, Chunk, Utterance
from .durations import DURATIONS, Duration, choose_durations
from .latents import any_prompt, longest_chunk
from .making import make_chunk, make_chunks
from .marked import directed
from .network import network_for
from .pauses import set_pauses
from .script import Part, check_speech, spoken_text
from .words import Piece, Timeline, choose_aligner

if TYPE_CHECKING:
    from nanospeech.engine.base import Engine
    from nanospeech.engine.worker import Worker

__all__ = ["DURATIONS", "Speaker", "Utterance", "check_speech", "step_bar"]


class Speaker:
    """One voice, ready to speak.

    Args:
        engine: of nanospeech.load_engine.
        voice: name of a built-in voice; None for the model's default one. "default/NAME" gives
            the model the recording of a voice that ships, with a warning.
        ref_audio: instead of a voice, a recording to imitate: the path, bytes or open file of one,
            or floats (n,) at 24 kHz; 0.5 to 60 seconds, best 3 to 12. An aligned model's file is
            cleared of rumble, noise and silence at its ends; floats are taken as they are. There
            is a warning if the model does not imitate.
        ref_text: what is said in it, which an aligned model need not know; it tells the pace.
        options: how the ODE is solved; a cfg_strength of None takes the voice's, else the
            model's.
        speed: of the new speech, relative to the voice's own; 2 is twice as fast.
        seed: of the noise; None draws one.
        output: pauses, loudness and a lexicon.
        chunk_seconds: about how long a chunk is; no longer than an EchoDiT's longest sample.
        duration: source of durations: "model" (the folder's duration model, else an aligned
            model's token durations), "tokens" (the latter), "both" (their geometric mean) or
            "rule" (the prompt's bytes a second); None is the first available of both, model, rule.
        aligner: engine of an aligned model that finds the words of a model that is not.

    Raises:
        InputError: an unknown voice, an unusable recording, one without words for a model that
            needs them, or an argument of another type or out of range.
        CheckpointError: the model lacks the durations that were chosen.
    """

    def __init__(
        self,
        engine: Engine | Worker,
        voice: str | None = None,
        ref_audio: str | PathLike[str] | bytes | BinaryIO | np.ndarray | None = None,
        ref_text: str | None = None,
        options: SampleOptions = SampleOptions(),
        speed: float = 1.0,
        seed: int | None = None,
        output: OutputOptions = OutputOptions(),
        *,
        chunk_seconds: float = lengths.CHUNK_SECONDS,
        duration: Duration | None = None,
        aligner: Engine | Worker | None = None,
    ):
        checks.check_engine("engine", engine)
        checks.check_given(voice, ref_text, options, output, aligner)
        ref_audio = checks.recording(ref_audio)
        own = engine.whole.config  # the engine may be that of another speaker's voice
        check_reference(ref_audio, ref_text, voice, own.hears_alone)
        check_speech(None, speed, seed)
        self.options, self.speed, self.output = options, number("speed", speed), output
        self.seed = secrets.randbits(31) if seed is None else whole("seed", seed)
        self.chunk_seconds = lengths.chunk_length(chunk_seconds)
        self.sample_rate: int = engine.config.audio.sample_rate
        settings, found = VoiceSettings(), None
        if ref_audio is None:
            if voice is None:
                found = default_voice(engine.folder, own.default_voice)
            else:
                found = find_voice(voice, engine.folder)
            ref_audio, ref_text = found.audio, found.text
            settings = found.settings
            if not ref_text and not own.hears_alone:
                raise VoiceError(
                    f"the words of voice {found.name!r} are not known, and the model"
                    f" {own.name!r} needs them: add it again with --text, from a recording of up"
                    " to 12 s"
                )
        self.voice = found
        self.network = network_for(engine.whole, found, options)
        engine = engine.with_voice(found and found.weights, self.network)
        warn_of_strangers(engine.config, engine.folder, found)
        lengths.warn_of_speed(engine.config, speed)
        self.engine: Any = engine
        self.duration, self.durations = duration, choose_durations(engine, duration)
        self.aligner = choose_aligner(engine, aligner)
        aligned = own.hears_alone and own.echo is None
        if aligned and found is None and not isinstance(ref_audio, np.ndarray):
            from .reference import as_prompt  # for few Speakers: it takes a while to load

            ref_audio = as_prompt(ref_audio, MAX_REFERENCE)
        if isinstance(ref_audio, np.ndarray):
            ref_audio = audio.resample(ref_audio, audio.SAMPLE_RATE, self.sample_rate)
        else:
            ref_audio = audio.read(ref_audio, self.sample_rate, MAX_REFERENCE)
        wave, trained = audio.centred(ref_audio), found is not None and found.is_own
        prompt = any_prompt(engine, wave, ref_text or "", trained)
        self.tokenizer = tokenizer_of(engine.tokenizer, output.lexicon, output.language)
        self.prompt = dataclasses.replace(prompt, settings=settings)
        self.level = Leveller(self.sample_rate, output.loudness, settings.loudness)
        self.casts: dict[Style, Speaker] = {}  # of markup
        self.left_out: LeftOut | None = None  # where one text is spoken and its caller wants it
        self.first: Any = None  # of beginning.py, where a stream should be heard sooner

    def use(self, options: SampleOptions) -> None:
        """Sets how the ODE is solved, and by which network: the model's student or itself."""
        self.options = options
        network = network_for(self.engine.whole, self.voice, options)
        if network != self.network:
            self.engine = self.engine.with_voice(self.voice and self.voice.weights, network)
            self.network = network

    def chunks(self, text: str, early: bool = False) -> list[str]:
        """The texts of the chunks: normalised, no words lost.

        Args:
            text: any length.
            early: chunks of stream(), of which the first are small; else those of speak().

        Raises:
            InputError: there is nothing to say.
        """
        return [part.text for part in self.parts(text, early)]

    def parts(self, text: str | Marked, early: bool = False) -> list[Part]:
        """The texts of chunks(), with the pauses after them."""
        spans = text.spans if isinstance(text, Marked) else [text]
        return list(script.some(self._texts(spans, early), spoken_text(text)))

    def _texts(self, texts: Iterable[str | Span], early: bool) -> Iterator[Part]:
        """The chunks of a text that comes in parts."""
        speed = lengths.own_speed(self.engine.config, self.speed)
        rate = self.prompt.rate * speed  # bytes a second
        longest = longest_chunk(self.engine.config) * self.prompt.settings.speed
        full = max(16.0, rate * min(self.chunk_seconds, longest))
        sizes = streaming.budgets(rate * streaming.FIRST_SECONDS if early else full, full)
        return script.parts(texts, self.tokenizer, sizes, full, rate, self.left_out)

    def frames(self, text: str, tokens: np.ndarray, seconds: float | None = None) -> int:
        """Mel frames of new speech for a chunk.

        Args:
            text: the chunk.
            tokens: its ids.
            seconds: its wanted length; None takes the estimate of the chosen source.
        """
        if seconds is not None:
            return lengths.asked_frames(self.engine, tokens, seconds)
        speed = lengths.own_speed(self.engine.config, self.speed) * self.prompt.settings.speed
        return lengths.new_frames(self.engine, self.prompt, text, tokens, speed, self.durations)

    def chunk(
        self,
        text: str,
        seed: int,
        seconds: float | None = None,
        after: str | float | None = None,
        words: tuple[Written, ...] = (),
        before: float = 0.0,
    ) -> Chunk:
        """One of chunks() with its ids and its length, see part_chunk().

        Args:
            after: kind or seconds of the next pause; None takes that of its last mark.
            words: as written, by their places in it.
            before: seconds of silence at its beginning; 0 is the model's own.
        """
        after = pause_after(text) if after is None else after
        return self.part_chunk(Part(text, after, words, before=before), seed, seconds)

    def part_chunk(self, part: Part, seed: int, seconds: float | None = None) -> Chunk:
        """A part of a text with its ids and its length: see making.make_chunk."""
        return make_chunk(self, part, seed, seconds)

    def stream(
        self,
        text: str | Marked | Iterable[str],
        seconds: float | None = None,
        on_step: Callable[[int, int], None] | None = None,
        early: bool = True,
    ) -> Iterator[np.ndarray]:
        """Speaks a text piece by piece.

        Args:
            text: see speak(); or an iterable of its parts as they are written, cut anywhere, which
                is spoken sentence by sentence.
            seconds: wanted length of all speech, instead of the model's.
            on_step: called as on_step(done, steps) after each solver step; `steps` is that of all
                chunks that are known by then.
            early: first chunks are a sentence or a clause, later ones grow to the size of those
                of speak(), and the vocoder works in pieces. If False, chunks are those of speak(),
                and the concatenation of all waves is what speak() returns.

        Yields:
            float32 waves. Their ends are held back for the cross-fade with the next chunk.

        Raises:
            InputError: there is no text to speak; at once where it is whole, or no text at all.
        """
        pieces = self.pieces(text, seconds, on_step, early)
        return (piece.wave for piece in pieces if len(piece.wave))

    def pieces(
        self,
        text: str | Marked | Iterable[str],
        seconds: float | None = None,
        on_step: Callable[[int, int], None] | None = None,
        early: bool = True,
    ) -> Iterator[Piece]:
        """The pieces of stream(), each with the words whose sound it completes.

        The words of all pieces are those of the whole text, in order; there are none where nothing
        finds them (see Utterance.words). The last piece may have words alone.
        """
        if isinstance(text, (str, Marked)):
            check_speech(spoken_text(text), self.speed, self.seed, seconds)
            who = directed(self, text)
            if early and seconds is None and streaming.is_long(text):
                portions = streaming.portions(text, front_end(who.tokenizer))
                ahead = script.some(who._texts(portions, early), text)
                return who._stream(ahead, None, on_step, early)
            return who._stream(who.parts(text, early), seconds, on_step, early)
        if seconds is not None:
            raise InputError("the length of a text that is still being written cannot be chosen")
        check_speech(None, self.speed, self.seed)
        return self._stream(self._arriving(checks.arriving(text), early), None, on_step, early)

    def timeline(self) -> Timeline:
        """Of the words of an utterance to come."""
        return Timeline(self.engine, self.aligner)

    def _arriving(self, parts: Iterable[str], early: bool) -> Iterator[Part]:
        whole = streaming.whole_sentences(parts, front_end(self.tokenizer))
        yield from script.some(self._texts(whole, early), left_out=self.left_out)

    def _stream(
        self,
        parts: Iterable[Part],
        seconds: float | None,
        on_step: Callable[[int, int], None] | None,
        early: bool,
    ) -> Iterator[Piece]:
        timeline, done = self.timeline(), 0
        waves = self._waves(parts, seconds, on_step, early, timeline)
        joined = audio.cross_fade(waves, int(CROSS_FADE * self.sample_rate))
        for wave in self.level(joined, early):
            done += len(wave)
            yield Piece(wave, timeline.take(done))
        if left := timeline.take(done, last=True):
            yield Piece(np.zeros(0, np.float32), left)

    def _waves(
        self,
        parts: Iterable[Part],
        seconds: float | None,
        on_step: Callable[[int, int], None] | None,
        early: bool,
        timeline: Timeline,
    ) -> Iterator[Iterator[np.ndarray]]:
        """The waves of chunks, each in pieces."""
        seed = whole("seed", self.seed)  # one of NumPy would overflow
        known = parts if isinstance(parts, list) else []
        speakers = [self.casts.get(part.style, self) for part in known]
        counts = [int(who.engine.config.chosen(self.options, "steps")) for who in speakers]
        counter = streaming.StepCounter(on_step, counts)
        made: list[Chunk] = []
        if seconds is not None:
            made = make_chunks(speakers, known, seed, seconds)
        ahead = streaming.Peekable(parts)
        for index, part in enumerate(ahead):
            who = self.casts.get(part.style, self)
            chunk = made[index] if made else who.part_chunk(part, seed + index)
            counter.begin(index)
            mel = beginning.sample(who, chunk, self.options, counter, early and not index)
            paced = set_pauses(who.engine, mel, chunk, self.output, first=not index)
            timeline.add(mel, chunk, paced, index)
            wave = streaming.vocode_paced(who.engine, who.prompt, paced, early, ahead)
            yield timeline.counted(paced.padded(wave))

    def speak(
        self,
        text: str | Marked,
        seconds: float | None = None,
        progress: bool = False,
    ) -> Utterance:
        """Speaks a text of any length.

        Args:
            text: what to say; of nanospeech.text.markup.read_markup if it has markup.
            seconds: wanted length of the whole, instead of the model's.
            progress: show a bar on stderr.

        Raises:
            InputError: there is nothing to say.
        """
        began = time.perf_counter()
        check_speech(spoken_text(text), self.speed, self.seed, seconds)
        who = directed(self, text)
        parts = who.parts(text, early=False)  # once: what cannot be spoken is warned of once
        with step_bar(progress) as on_step:
            pieces = list(who._stream(parts, seconds, on_step, early=False))
        return Utterance(
            np.concatenate([piece.wave for piece in pieces]),
            self.sample_rate,
            time.perf_counter() - began,
            whole("seed", self.seed),
            tuple(part.text for part in parts),
            self.aligner and tuple(word for piece in pieces for word in piece.words),
        )

    @overload
    def speak_many(
        self,
        texts: Iterable[str | Marked],
        seeds: Iterable[int] | None = None,
        progress: bool = False,
        *,
        raise_errors: Literal[True],
        limits: BatchLimits = BatchLimits(),
    ) -> list[Utterance]: ...

    @overload
    def speak_many(
        self,
        texts: Iterable[str | Marked],
        seeds: Iterable[int] | None = None,
        progress: bool = False,
        raise_errors: bool = False,
        limits: BatchLimits = BatchLimits(),
    ) -> list[Utterance | InputError]: ...

    def speak_many(
        self,
        texts: Iterable[str | Marked],
        seeds: Iterable[int] | None = None,
        progress: bool = False,
        raise_errors: bool = False,
        limits: BatchLimits = BatchLimits(),
    ) -> list[Utterance] | list[Utterance | InputError]:
        """Speaks texts of any lengths, many chunks at once.

        Each is what speak() makes of it alone with the same seed, but for rounding: in float32 that
        cannot be heard or seen, in bfloat16 it is that of any other order of the same sums.

        Args:
            texts: what to say, see speak().
            seeds: one for each text; None is the speaker's own for all.
            progress: show a bar on stderr.
            raise_errors: raise the first InputError instead of returning it.
            limits: of a batch.

        Returns:
            As many results as texts, in their order. Where a text cannot be spoken (it is empty, or
            the model knows none of its characters) the InputError that says why stands in its
            place, and the others are spoken all the same.

        Raises:
            InputError: one text instead of several, or seeds that do not fit the texts; or a text's
                error, if raise_errors.
        """
        texts = checks.many(texts, seeds, limits)
        found: list[Any] = [None] * len(texts)
        results = batching.speak_each(self, texts, seeds, limits)
        sizes = [batching.effort(self, text) for text in texts]
        with batching.length_bar(sizes, "text", progress) as done:
            for index, result in results:
                if raise_errors and isinstance(result, InputError):
                    raise result
                found[index] = result
                done(index)
        return found
