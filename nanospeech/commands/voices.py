"""`nanospeech voices`: which voices there are, what is known of one, and a user's own."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from nanospeech.cli import Parser, command
from nanospeech.config import AudioConfig
from nanospeech.errors import CheckpointError, InputError

ABOUT = """Lists voices, shows what is known of one, and keeps recordings as voices of your own.

  nanospeech voices
  nanospeech voices --model my_voice
  nanospeech voices show kumo
  nanospeech voices add anna me.wav      then: nanospeech "Hello." --voice anna"""
ADD = """Keeps a recording as a voice of your own, for every model that imitates.

  nanospeech voices add anna me.wav
  nanospeech voices add anna me.wav --text "What I say."     its words tell its pace
  nanospeech "Hello." --voice anna"""
SHOW = """Shows what is known of a voice.

  nanospeech voices show robin
  nanospeech voices show anna --model my_voice"""
REMOVE = """Deletes a voice that you added.

  nanospeech voices remove anna"""
CONSENT = (
    "Keep and use a person's voice only with that person's consent, and do not pass off what it"
    " says as theirs."
)


def build_parser() -> argparse.ArgumentParser:
    model = Parser("", add_help=False)
    where = "release folder or Hub name (default: the one that ships)"
    model.add_argument("--model", default=argparse.SUPPRESS, help=where)
    parser = Parser("nanospeech voices", ABOUT, parents=[model])
    tools = parser.add_subparsers(dest="tool", metavar="list | show | add | remove")
    known = "a voice a line, with what is known of it (the default)"
    tools.add_parser("list", help=known, parents=[model])
    known = "words, licence, files and settings of a voice"
    show = tools.add_parser("show", description=SHOW, help=known, parents=[model])
    show.add_argument("name", help="of the voice")
    add = tools.add_parser("add", description=ADD, help="keep a recording as a voice")
    add.add_argument("name", help="of the voice: letters, digits, - and _")
    add.add_argument("recording", type=Path, help="3 to 12 seconds of one person's speech")
    add.add_argument("--text", help="what is said in it; else Whisper listens, if installed")
    add.add_argument("--whisper", default="base", help="its size or a folder (default: base)")
    known = "whose words Whisper writes down (default: %(default)s)"
    add.add_argument("--language", default="en", help=known)
    add.add_argument("--licence", default="", help="of the recording, in a few words")
    add.add_argument("--overwrite", action="store_true", help="replace a voice of that name")
    remove = tools.add_parser("remove", description=REMOVE, help="delete a voice that you added")
    remove.add_argument("name", help="of the voice")
    return parser


def add_voice(args: argparse.Namespace) -> None:
    """Keeps a recording as a voice of the user's.

    Raises:
        InputError: a name that cannot be or is taken, a folder that cannot be written to, or a
            recording that cannot be used.
    """
    from nanospeech.measure.transcription import hear_reference
    from nanospeech.release.user_voices import (
        check_name,
        check_writable,
        files_of,
        folded,
        save_voice,
    )
    from nanospeech.release.voices import shipped_voices
    from nanospeech.text.languages import base_code

    check_name(args.name)
    if folded(args.name) in map(folded, shipped_voices()):
        raise InputError(f"{args.name} is a voice that ships; choose another name")
    if files_of(args.name) and not args.overwrite:
        raise InputError(f"you have a voice {args.name!r}; pass --overwrite to replace it")
    check_writable()
    language = base_code(args.language)
    found = hear_reference(args.recording, args.text, args.whisper, print, language)
    about = {
        "origin": "yours",
        "licence": args.licence,
        "bandwidth": round(found.bandwidth, -1),
        "added": date.today().isoformat(),
        "from": args.recording.name,
    }
    path = save_voice(args.name, found.wave, found.text, about, args.overwrite)
    print(
        f"kept {len(found.wave) / AudioConfig().sample_rate:.1f} s as the voice {args.name}: {path}"
    )
    if found.heard:
        print("if the words are wrong, give them: the same command with --overwrite --text '...'")
    print(CONSENT)
    warn_of_imitation(args.name)


def warn_of_imitation(name: str) -> None:
    """Says where the model that ships will not speak like the recording."""
    from nanospeech.release.folder import DEFAULT, MODEL, load_config
    from nanospeech.release.sharded import there

    if there(DEFAULT / MODEL) and not load_config(DEFAULT).takes_recordings:
        print(
            f"the model that ships does not imitate: with it, --voice {name} is spoken in a voice"
            f" of its own. Give --model one that imitates, or: nanospeech finetune --voice {name}"
        )


def list_them(folder: Path) -> None:
    """Prints a table of a release's voices, and where their recordings are."""
    from nanospeech.release.folder import load_config
    from nanospeech.release.voice_facts import VoiceFacts, load_facts, one_line, table
    from nanospeech.release.voices import added_voices, default_voice, own_voices, shipped_voices

    own = own_voices(folder)
    voices = dict(sorted((own or shipped_voices()).items()))
    facts = {name: load_facts(path) for name, path in voices.items()}
    if not own:  # what was measured with another model
        facts = {name: dataclasses.replace(f, wer=None) for name, f in facts.items()}
    yours, count = added_voices(voices), len(facts)
    for name, path in yours.items():
        try:
            facts[name] = load_facts(path)
        except CheckpointError as e:  # of one that is damaged; the others are told all the same
            facts[name] = VoiceFacts()
            print(f"warning: {e}", file=sys.stderr)
    lines = table(facts)  # one, so that the columns of both parts have the same heads
    print("\n".join(lines[: count + 1]))
    if yours:
        print("\n" + "\n".join(["added by you:", *lines[count + 1 :]]))
    if not own and voices:
        print(f"{folder} has no voices of its own: it takes the recordings of those that ship")
    if preferred := load_config(folder).default_voice:
        spoken = default_voice(folder, preferred).name if own else preferred
        print(f"default: {one_line(spoken)}")
    if any(f.is_narrow for f in facts.values()):
        print("* narrow: no sound above that, so it is duller than the others")
    recordings = [*voices.values(), *yours.values()]
    for parent in sorted({path.parent for path in recordings}):
        endings = sorted({p.suffix for p in recordings if p.parent == parent})
        print(f"samples: {parent / 'NAME'}{' or '.join(endings)}")


def told(key: str, value: object) -> bool:
    """Whether a setting of a voice is another than usual."""
    from nanospeech.release.voices import VoiceSettings

    return not isinstance(value, bool) and value != getattr(VoiceSettings(), key)


def show_one(name: str, folder: Path) -> None:
    """Prints what is known of a voice.

    Raises:
        InputError: there is no such voice.
    """
    from nanospeech.release.folder import load_config
    from nanospeech.release.voice_facts import load_facts, one_line, printable
    from nanospeech.release.voices import find_voice

    voice = find_voice(name, folder)
    facts = load_facts(voice.audio)
    licence = voice.audio.with_name(f"{voice.audio.stem}.license.txt")
    imitated = voice.is_recording and load_config(folder).imitator
    lines = {
        "name": voice.name,
        "words": one_line(voice.text),
        "sample": voice.audio,
        "sex": facts.sex,
        "accent": facts.accent,
        "origin": facts.origin,
        "bandwidth": facts.bandwidth and f"{facts.bandwidth:,.0f} Hz{', narrow' * facts.is_narrow}",
        "WER": facts.wer is not None and voice.is_own and f"{facts.wer:g} %",
        "settings": ", ".join(
            f"{key} {value:g}" for key, value in vars(voice.settings).items() if told(key, value)
        ),
        "weights": voice.weights or ("the imitator's" if imitated else "the model's"),
        "licence": printable(licence.read_text(encoding="utf-8", errors="replace"))
        if licence.is_file()
        else facts.licence,
    }
    print("\n".join(f"{key}: {value}" for key, value in lines.items() if value))


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    from nanospeech.release.folder import resolve

    model = getattr(args, "model", None)
    if model is not None and args.tool in ("add", "remove"):
        raise InputError(
            f"--model is of list and show: what you {args.tool} is your own, for every model;"
            " leave it out"
        )
    if args.tool == "show":
        show_one(args.name, resolve(model))
    elif args.tool == "add":
        add_voice(args)
    elif args.tool == "remove":
        from nanospeech.release.user_voices import remove_voice

        print(f"removed {', '.join(map(str, remove_voice(args.name)))}")
    else:
        list_them(resolve(model))
    return 0


if __name__ == "__main__":
    sys.exit(main())
