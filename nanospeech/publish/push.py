"""Uploads a release folder to the Hugging Face Hub, from where `--model USER/REPO` speaks.

    nanospeech publish my_voice --push anna/my-voice --license cc-by-4.0
    nanospeech publish my_voice --push anna/my-voice --private --language de

Files of a release alone are uploaded, in one commit, which deletes those that the repository had of
an earlier release and the folder has not: a voice that was removed, say. A file that is a link is
uploaded as what it leads to, as by hf upload. The Hub's metadata
(library, task, licence, language) is written to the beginning of README.md; what stands there
already stays. A token with write access is taken from `hf auth login` or HF_TOKEN. The last line is
one JSON document.
"""

from __future__ import annotations

import argparse
import glob
import json
import logging
import re
import shutil
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from nanospeech.cli import Parser, command
from nanospeech.errors import BackendError, InputError
from nanospeech.files import whole
from nanospeech.release.folder import (
    HUB_NAME,
    IMITATOR,
    RELEASE_FILES,
    SHARDED,
    TEXT_ENCODER,
    Release,
    load_config,
    open_release,
)
from nanospeech.release.sharded import PART
from nanospeech.release.voices import own_voices

log = logging.getLogger("nanospeech")

TOKENS = "https://huggingface.co/settings/tokens"
ADVICE = {  # by HTTP status
    401: f"the Hub does not know the token: make one with write access at {TOKENS}, and run hf auth"
    " login, or set HF_TOKEN",
    403: f"the token may not write there: USER of USER/REPO should be you or an organisation of"
    f" yours, and the token needs write access ({TOKENS})",
    404: "there is no such user or repository, or the token may not see it",
    429: "the Hub asks for a pause; run the same command later",
}
VOICES = "voices"
VOICE_FILES = (".txt", ".json", ".license.txt", ".safetensors")  # beside its recording
METADATA = {"library_name": "nanospeech", "pipeline_tag": "text-to-speech"}
LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")


def metadata(
    old: dict[str, Any], licence: str | None, languages: Sequence[str], own: str = ""
) -> dict[str, Any]:
    """The Hub's metadata of a release.

    Args:
        old: what its README.md has; all of it stays but for what is given.
        licence: an identifier of the Hub, such as "mit".
        languages: two- or three-letter codes; none keeps the old ones, or takes the model's own.
        own: config.json's language, where "" is English, and "und" several, which are not known.

    Raises:
        InputError: no licence is known, or it is no identifier.
    """
    identifier = licence or old.get("license")
    if identifier is None:
        raise InputError(
            "the licence of the model is not known; name it with --license, for example mit, "
            "cc-by-4.0, or other (huggingface.co/docs/hub/repositories-licenses)"
        )
    if not LICENCE.fullmatch(str(identifier)):
        raise InputError(
            f"--license is {identifier!r}; the Hub's identifiers are like mit or cc-by-4.0"
        )
    known = old.get("language")
    if known is False or (isinstance(known, list) and False in known):
        known = ["no" if c is False else c for c in known or [False]]  # to YAML, Norwegian is False
    spoken = list(languages) or known or [own or "en"]
    told = {} if spoken == ["und"] else {"language": spoken}
    return METADATA | old | {"license": identifier} | told


def licence_of(release: Release, asked: str | None) -> str | None:
    """The licence that is asked for, else the one of config.json.

    Raises:
        InputError: these differ.
    """
    known = release.config.licence
    if asked and known and asked.lower() not in (known.lower(), "other"):
        raise InputError(
            f"--license is {asked}, but the weights in {release.folder} are under {known}, as their"
            " config.json says; leave it out, or change both: nanospeech convert --licence"
        )
    return asked or known


def warn_of_imitator(release: Release, licence: str) -> None:
    """Warns where the imitator's weights are under another licence than the repository's."""
    if not release.config.imitator:
        return
    inner = load_config(release.folder / IMITATOR).licence
    if inner and inner.lower() != licence.lower():
        log.warning(
            "the imitator's weights are under %s, not %s: its licence holds for them",
            inner,
            licence,
        )


def write_metadata(card: Path, licence: str | None, languages: Sequence[str], own: str = "") -> str:
    """Puts the Hub's metadata at the beginning of a model card; returns its licence.

    Args:
        card: README.md.
        licence, languages, own: see metadata.

    Raises:
        InputError: there is no card, it cannot be read, or no licence is known.
    """
    import yaml
    from huggingface_hub import metadata_load, metadata_save

    if not card.is_file():
        raise InputError(f"{card} is missing; nanospeech publish card {card.parent} writes it")
    try:
        old = metadata_load(card) or {}
    except (ValueError, yaml.YAMLError) as e:
        why = " ".join(str(e).split())
        raise InputError(f"the metadata at the beginning of {card} is not YAML: {why}") from e
    new = metadata(old, licence, languages, own)
    if new != old:
        with whole(card) as part:  # a card of the Hub's cache is a link to a file of others too
            shutil.copyfile(card, part)
            metadata_save(part, new)
    return str(new["license"])


def release_files(folder: Path) -> list[str]:
    """Paths within a folder of its release's files: no other, and none that is hidden.

    Raises:
        InputError: a folder in it is a link, which the Hub's client does not follow.
    """
    inner = [folder / name for name in (VOICES, IMITATOR, TEXT_ENCODER)]
    if linked := [path for path in inner if path.is_symlink()]:
        raise InputError(
            f"{linked[0]} is a link, whose files would not be uploaded; publish a copy of the"
            f" release with the files themselves: cp -rL {folder} COPY"
        )
    voices = [
        f"{VOICES}/{name}"
        for recording in own_voices(folder).values()
        for name in (recording.name, *(recording.stem + end for end in VOICE_FILES))
    ]
    plain = [p for p in RELEASE_FILES if p not in (*SHARDED, f"{VOICES}/*")]
    weights = [p.removesuffix(".safetensors") for p in plain if p.endswith(".safetensors")]
    found = []
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        path = file.relative_to(folder).as_posix()
        whose = PART.sub("", path).removesuffix(".safetensors.index.json")
        if any(part.startswith(".") for part in path.split("/")):
            continue
        if (
            path in voices
            or (whose != path and whose in weights)
            or any(fnmatch(path, pattern) for pattern in (*plain, "LICENSE*"))
        ):
            found.append(path)
    return found


def push(folder: Path, repo: str, private: bool | None = None, message: str | None = None) -> str:
    """Uploads a release in one commit, making the repository if it is not there.

    The repository then has the folder's release: files of an earlier one are deleted.

    Args:
        folder: release folder; other files in it stay here.
        repo: USER/REPO.
        private: whether none but its owners see it, as the one that is there or is made.
        message: of the commit.

    Returns:
        The commit's address.

    Raises:
        InputError: no token, the Hub refuses it, the repository is to be private and is public, or
            a folder in the release is a link.
        BackendError: the Hub cannot be reached, or fails.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    files = release_files(folder)
    token = get_token()
    if not token:
        raise InputError(
            f"no Hugging Face token: run hf auth login, or set HF_TOKEN to one with write access "
            f"({TOKENS})"
        )
    api = HfApi(token=token)
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise InputError(
                f"{repo} is there already, and public; make it private in its settings on the Hub,"
                " or leave out --private"
            )
        commit = api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            allow_patterns=[glob.escape(path) for path in files],
            delete_patterns=list(RELEASE_FILES),
            commit_message=message or f"Upload {folder.resolve().name} by nanospeech",
        )
    except InputError:
        raise
    except HfHubHTTPError as e:
        status = e.response.status_code if e.response is not None else None
        advice = ADVICE.get(status or 0)
        if advice:
            raise InputError(f"{repo} cannot be written: {advice}") from None
        raise BackendError(f"{repo}: the Hub answers {status}: {first_line(e, token)}") from None
    except HFValidationError as e:
        raise InputError(f"--push: {first_line(e, token)}") from None
    except Exception as e:  # its HTTP libraries' errors share no base class
        raise BackendError(f"the Hub cannot be reached: {first_line(e, token)}") from None
    return str(commit.commit_url)


def first_line(error: Exception, token: str) -> str:
    """An error's first line, without the token."""
    return str(error).strip().split("\n")[0].replace(token, "***")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech publish", __doc__)
    add = parser.add_argument
    add("folder", type=Path, help="release folder")
    add("--push", "--to", required=True, metavar="USER/REPO", help="repository on the Hub")
    add("--license", help="of the model: an identifier of the Hub, such as mit (once)")
    add("--language", nargs="+", default=[], metavar="CODE", help="it speaks (default: its own)")
    add("--private", action="store_true", default=None, help="seen by its owners alone")
    add("--message", help="of the commit")
    return parser


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if not HUB_NAME.fullmatch(args.push):
        raise InputError(f"--push {args.push!r} should be USER/REPO")
    if not args.folder.is_dir():
        raise InputError(f"there is no folder {args.folder}; nanospeech convert makes a release")
    release = open_release(args.folder)
    folder = release.folder
    licence = licence_of(release, args.license)
    card, own = folder / "README.md", release.config.language
    warn_of_imitator(release, write_metadata(card, licence, args.language, own))
    address = push(folder, args.push, args.private, args.message)
    print(f"nanospeech speak --model {args.push} speaks with it")
    print(json.dumps({"repository": args.push, "commit": address}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
