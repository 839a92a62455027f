"""Uploads a release folder to the Hugging Face Hub, from where `--model USER/REPO` speaks.

    nanospeech publish my_voice --push anna/my-voice --license cc-by-4.0
    nanospeech publish my_voice --push anna/my-voice --private --language de

Files of a release alone are uploaded, in one commit. The Hub's metadata (library, task, licence,
language) is written to the beginning of README.md; what stands there already stays. A token with
write access is taken from `hf auth login` or HF_TOKEN. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanospeech.cli import Parser, command
from nanospeech.errors import BackendError, InputError
from nanospeech.release.folder import HUB_NAME, RELEASE_FILES, open_release

TOKENS = "https://huggingface.co/settings/tokens"
ADVICE = {  # by HTTP status
    401: f"the Hub does not know the token: make one with write access at {TOKENS}, and run hf auth"
    " login, or set HF_TOKEN",
    403: f"the token may not write there: USER of USER/REPO should be you or an organisation of"
    f" yours, and the token needs write access ({TOKENS})",
    404: "there is no such user or repository, or the token may not see it",
    429: "the Hub asks for a pause; run the same command later",
}
METADATA = {"library_name": "nanospeech", "pipeline_tag": "text-to-speech"}
LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")


def metadata(old: dict[str, Any], licence: str | None, languages: Sequence[str]) -> dict[str, Any]:
    """The Hub's metadata of a release.

    Args:
        old: what its README.md has; all of it stays but for what is given.
        licence: an identifier of the Hub, such as "mit".
        languages: two- or three-letter codes; none keeps the old ones, or takes English.

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
    spoken = list(languages) or old.get("language") or ["en"]
    return METADATA | old | {"license": identifier, "language": spoken}


def write_metadata(card: Path, licence: str | None, languages: Sequence[str]) -> None:
    """Puts the Hub's metadata at the beginning of a model card.

    Raises:
        InputError: there is no card, it cannot be read, or no licence is known.
    """
    from huggingface_hub import metadata_load, metadata_save

    if not card.is_file():
        raise InputError(f"{card} is missing; nanospeech publish card {card.parent} writes it")
    try:
        old = metadata_load(card) or {}
    except ValueError as e:
        raise InputError(f"the metadata at the beginning of {card} is not YAML: {e}") from e
    if (new := metadata(old, licence, languages)) != old:
        metadata_save(card, new)


def push(folder: Path, repo: str, private: bool | None = None, message: str | None = None) -> str:
    """Uploads a release in one commit, making the repository if it is not there.

    Args:
        folder: release folder; other files in it stay here.
        repo: USER/REPO.
        private: of a repository that is made.
        message: of the commit.

    Returns:
        The commit's address.

    Raises:
        InputError: no token, or the Hub refuses it.
        BackendError: the Hub cannot be reached, or fails.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    token = get_token()
    if not token:
        raise InputError(
            f"no Hugging Face token: run hf auth login, or set HF_TOKEN to one with write access "
            f"({TOKENS})"
        )
    api = HfApi(token=token)
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            allow_patterns=[*RELEASE_FILES, "README.md", "LICENSE*"],
            commit_message=message or f"Upload {folder.resolve().name} by nanospeech",
        )
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
    add("--language", nargs="+", default=[], metavar="CODE", help="that it speaks (default: en)")
    add("--private", action="store_true", default=None, help="if the repository is made")
    add("--message", help="of the commit")
    return parser


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if not HUB_NAME.fullmatch(args.push):
        raise InputError(f"--push {args.push!r} should be USER/REPO")
    if not args.folder.is_dir():
        raise InputError(f"there is no folder {args.folder}; nanospeech convert makes a release")
    folder = open_release(args.folder).folder
    write_metadata(folder / "README.md", args.license, args.language)
    address = push(folder, args.push, args.private, args.message)
    print(f"nanospeech speak --model {args.push} speaks with it")
    print(json.dumps({"repository": args.push, "commit": address}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
