"""Speak flags: texts, voices and machines, for the commands that speak. Each adds to a group."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

from .config import BatchLimits

# flags of Piper, F5-TTS, mlx-audio, Kokoro, espeak and say, and what is the same here
ELSEWHERE = {
    "d": "--output FOLDER, with --batch",
    "f": "--file for what is read, --output for what is written",
    "i": "--file",
    "l": "--language",
    "m": "--model, or --voice for a voice",
    "o": "--output",
    "r": "--ref-audio, or --speed for a rate, where 2 is twice as fast",
    "s": "--speed, where 2 is twice as fast, or --voice for a speaker, --ref-text for words",
    "t": "--text",
    "v": "--voice",
    "w": "--output",
    "audio-format": "the ending of --output",
    "cfg-scale": "--cfg",
    "cfg-strength": "--cfg",
    "ckpt-file": "--model FOLDER, which nanospeech convert makes of it",
    "cuda": "--device cuda",
    "data-dir": "--model FOLDER",
    "file-prefix": "--output",
    "gen-text": "--text",
    "input-file": "--file",
    "join-audio": "one file is written, without a flag",
    "json-input": "--batch FILE --output FOLDER",
    "length-scale": "--speed, which is 1 divided by it",
    "noise-scale": "--temperature",
    "output-dir": "--output, with --batch a folder",
    "output-raw": "--stream --output -, which writes WAV",
    "play": "--stream",
    "rate": "--speed, where 2 is twice as fast",
    "remove-silence": "--pause-sentence and the other pauses",
    "sentence-silence": "--pause-sentence",
    "speaker": "--voice",
    "speaker-id": "--voice",
    "stdout": "--output -",
    "stt-model": "--whisper",
    "voices": "--list-voices",
    "volume": "--loudness",
}


def add_texts(add: Callable[..., Any]) -> None:
    """Flags of what is said, and where to."""
    add("words", nargs="*", metavar="TEXT", help="the same as --text TEXT, in quotes")
    add("--text", help="what to say; - or nothing reads it from standard input")
    add("--file", metavar="FILE", help="instead of --text: a text file to speak")
    add(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="of --file, --batch and standard input, for example cp1252 (default: %(default)s)",
    )
    add(
        "--output",
        metavar="FILE",
        help="wav, flac, ogg, opus or mp3; - writes WAV to standard output",
    )
    add(
        "--markup",
        action=argparse.BooleanOptionalAction,
        help="whether [pause 500ms], [spell: ABC], [say: word | phonemes], [slow], [fast] and"
        " [voice: NAME] are read (docs/writers.md); default: yes, but in SSML and in text that"
        " is spoken as it arrives",
    )
    add("--ssml", action="store_true", help="the text is SSML")
    add(
        "--subtitles",
        metavar="FILE",
        help="write when each word is heard: .srt, .vtt or .json; with --batch srt, vtt or json"
        " alone, for a file beside each WAV",
    )
    add(
        "--subtitle-words",
        action="store_true",
        help="with --subtitles: a cue for each word, not for each sentence",
    )
    add(
        "--stream",
        action="store_true",
        help="play, or write, during synthesis: a sentence or a clause first."
        " Standard input is spoken as it arrives",
    )
    add(
        "--batch",
        metavar="FILE",
        help="speak each line of a file, 'text', 'id|text' or JSON with text, id and voice, into"
        " the folder that --output names, as ID.wav or the line's number. Existing files are kept",
    )
    add("--overwrite", action="store_true", help="with --batch: replace existing files")
    size = dataclasses.fields(BatchLimits)[0]
    add(
        "--batch-size",
        type=int,
        default=size.default,
        metavar="N",
        help=f"with --batch: {size.metadata['help']} (default: %(default)s)",
    )


def add_voices(add: Callable[..., Any]) -> None:
    """Flags of who speaks."""
    add(
        "--model",
        help="release folder or Hugging Face repository (owner/name, or owner/name@revision); the"
        " default voice if not given",
    )
    add(
        "--voice",
        metavar="NAME",
        help="one of the model's voices, or of those that you added (nanospeech voices add);"
        " default/NAME: the recording of one that ships",
    )
    add("--list-voices", action="store_true", help="print the names of the model's voices")
    add("--ref-audio", metavar="FILE", help="recording of a voice to imitate, best 3 to 12 seconds")
    add("--ref-text", metavar="TEXT", help="what is said in --ref-audio, if you like")
    add("--whisper", metavar="NAME", help="size or folder of Whisper, for --ref-audio (base)")


def add_machine(add: Callable[..., Any]) -> None:
    """Flags of the machine's part: what computes, in which type."""
    add("--seed", type=int, metavar="N", help="the same seed makes the same speech")
    add(
        "--backend",
        default="auto",
        metavar="NAME",
        help="torch, mlx, onnx or another that is installed; auto chooses one",
    )
    add("--device", help="for example cpu, cuda, cuda:1, mps or gpu; a GPU if there is one")
    add(
        "--dtype",
        help="float32, float16 or bfloat16; onnx: float32 or int8 (default: the fastest here)",
    )
    add(
        "--quantize",
        type=int,
        metavar="BITS",
        help="round the weights to 4 or 8 bits on load; see also nanospeech convert --quantize",
    )
    add(
        "--compile",
        action="store_true",
        help="compile the network: for long texts and batches on a GPU, slower to start (MLX"
        " does so there by itself; onnx has nothing to compile)",
    )
