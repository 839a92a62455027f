"""Faults: separates errors of data from errors of a user's own function. Reads nothing."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path

import soundfile

from nanospeech.errors import DataError, InputError

OF_A_FILE = (OSError, EOFError, soundfile.LibsndfileError)  # also where a function reads it


def check_own(error: Exception, where: str) -> None:
    """Raises errors that are not the data's, as they would recur with every sample.

    Args:
        error: from reading a dataset.
        where: it happened.

    Raises:
        DataError: the error came out of a function that the user gave to the dataset, and is not
            of a file or a network.
        InputError: a package is missing.
    """
    own = user_frame(error)
    if own is not None and not isinstance(error, OF_A_FILE):
        raise DataError(
            f"a function given to the dataset failed in {where}: {type(error).__name__}: {error}, "
            f"in {own.name} ({own.filename}, line {own.lineno}); mend the function (map, filter, "
            "with_transform, generator), or filter out first what it cannot take"
        ) from error
    if isinstance(error, ImportError):
        raise InputError(
            f"reading {where} needs a package that is not installed: {error} (a dataset that is "
            "mapped decodes its audio columns before; without torchcodec, call map on "
            "nanospeech_torch.train.data.sources.undecoded(dataset))"
        ) from error


def user_frame(error: Exception) -> traceback.FrameSummary | None:
    """The innermost frame of a user's own code in an error's traceback, or None.

    That is code of neither Python, installed packages nor this one; or what the datasets library
    applies, if the function is itself a package's.
    """
    found = None
    frames = traceback.extract_tb(error.__traceback__)
    for outer, frame in zip([None, *frames], frames):
        applied = outer is not None and outer.name == "apply_function" and installed(outer.filename)
        # the library's own wrapper of a filter's function does not count
        if not installed(frame.filename) or (applied and not in_datasets(frame.filename)):
            found = frame
    return found


def installed(filename: str) -> bool:
    """Whether code is Python's, an installed package's or this package's, by its file's name."""
    if filename.startswith("<"):  # not read from a file: typed into a shell, or made by a package
        return filename.startswith(("<frozen", "<string>"))
    if not os.path.isabs(filename) and not os.path.isfile(filename):
        return True  # a compiled module names the file that it was compiled from
    folders = {sysconfig.get_path(n) for n in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.add(str(Path(__file__).parents[2]))
    inside = any(filename.startswith(folder + os.sep) for folder in folders if folder)
    return inside or in_datasets(filename)


def in_datasets(filename: str) -> bool:
    """Whether a file is of the datasets library."""
    import datasets

    return filename.startswith(str(Path(datasets.__file__).parent) + os.sep)
