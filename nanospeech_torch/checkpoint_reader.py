"""Checkpoint reader: tensors out of sharded checkpoints, without running anything in them."""

from __future__ import annotations

import json
import pickle
import warnings
from enum import EnumMeta
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from nanospeech.errors import CheckpointError

METADATA_CLASSES = {
    "torch.distributed.checkpoint.metadata": {
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "StorageMeta"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"} | {str(d).partition(".")[2] for d in (torch.float32, torch.float64)},
    "collections": {"OrderedDict"},
}
# Where a checkpoint was written. Python 3.13 alone pickles the second module's name, and a system
# makes no Path of another's
PATH_MODULES = ("pathlib", "pathlib._local")
UNPICKLER: Any = pickle._Unpickler  # the one in Python, of which a step can be replaced
PATHS = {"Path": PurePath, "PosixPath": PurePosixPath, "WindowsPath": PureWindowsPath}


def member(owner: Any, name: Any) -> Any:
    """A member of an enumeration, in place of getattr.

    Raises:
        CheckpointError: anything else is asked for.
    """
    if isinstance(owner, EnumMeta) and name in owner.__members__:
        return owner.__members__[name]
    raise CheckpointError(f"a checkpoint's .metadata asks for {name} of {owner}; not loaded")


class MetadataUnpickler(UNPICKLER):
    """Unpickles the classes of .metadata alone: a checkpoint runs no code and changes no class."""

    def load_build(self) -> None:
        if callable(self.stack[-2]):  # a class: what is set of it is set for the whole process
            raise CheckpointError("a checkpoint's .metadata would change a class; not loaded")
        super().load_build()

    dispatch: ClassVar = {**UNPICKLER.dispatch, pickle.BUILD[0]: load_build}

    def find_class(self, module: str, name: str) -> Any:
        if module in ("builtins", "__builtin__") and name == "getattr":
            return member  # Python 3.11.0 to 3.11.3 pickles members of enumerations by getattr
        if module in PATH_MODULES and name in PATHS:
            return PATHS[name]
        known = name in METADATA_CLASSES.get(module, ())
        if known or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise CheckpointError(f"a checkpoint's .metadata asks for {module}.{name}; not loaded")


class SafeReader(FileSystemReader):
    """The library's reader, with metadata read by MetadataUnpickler."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        path = self.fs.concat_path(self.path, ".metadata")
        with self.fs.create_stream(path, "rb") as stream:
            metadata = MetadataUnpickler(stream).load()
        described = metadata.state_dict_metadata
        if any(type(d) is not TensorStorageMetadata for d in described.values()):
            raise CheckpointError(  # the library would unpickle them
                f"{self.path} holds other things than tensors; not loaded"
            )
        if metadata.storage_meta is not None:
            metadata.storage_meta.load_id = self.load_id
        return metadata


def complete(path: Path) -> bool:
    """Whether a folder holds a whole checkpoint."""
    return (path / ".metadata").is_file() and (path / "meta.json").is_file()


class OneByOne:
    """Tensors of a checkpoint folder, read one at a time.

    Raises:
        CheckpointError: it is not a whole checkpoint.
    """

    def __init__(self, path: Path):
        check_complete(path)
        self.reader = KnownReader(path)
        self.described = self.reader.known.state_dict_metadata

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each tensor by name."""
        return {name: tuple(d.size) for name, d in self.described.items()}

    def read(self, name: str) -> Tensor:
        """A whole tensor on the CPU."""
        d = self.described[name]
        state = {name: torch.empty(d.size, dtype=d.properties.dtype)}
        read_into(state, self.reader)
        return state[name]


class KnownReader(SafeReader):
    """A reader that keeps the metadata, for many reads.

    Raises:
        CheckpointError: its .metadata is damaged, or has what is not loaded.
    """

    def __init__(self, path: Path):
        super().__init__(path)
        try:
            self.known = super().read_metadata()
        except CheckpointError:
            raise
        except Exception as e:  # of damaged pickles: any
            raise damaged(path, e, ".metadata") from e

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        return self.known


def check_complete(path: Path) -> None:
    """Raises CheckpointError for a folder that holds no whole checkpoint."""
    if not complete(path):
        raise CheckpointError(f"{path} is not a complete checkpoint (no .metadata or meta.json)")


def read_tensors(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """Tensors of a checkpoint folder whose names begin with `prefix`, put together on the CPU.

    Raises:
        CheckpointError: it is not a whole checkpoint.
    """
    whole = OneByOne(path)
    state = {
        name: torch.empty(d.size, dtype=d.properties.dtype)
        for name, d in whole.described.items()
        if name.startswith(prefix)
    }
    read_into(state, whole.reader)
    return {name.removeprefix(prefix): value for name, value in state.items()}


def read_meta(path: Path) -> dict[str, Any]:
    """The meta.json of a checkpoint.

    Raises:
        CheckpointError: it is incomplete or damaged.
    """
    check_complete(path)
    try:
        return json.loads((path / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise damaged(path, e, "meta.json") from e


def read_into(tensors: dict[str, Tensor], reader: FileSystemReader, group: Any = None) -> None:
    """Reads tensors of a checkpoint in place.

    Args:
        tensors: by their names there.
        reader: of its folder.
        group: of the processes that all read; None: this one alone.

    Raises:
        CheckpointError: a file of it is missing or damaged.
    """
    quiet()
    try:
        load(tensors, storage_reader=reader, process_group=group, no_dist=group is None)
    except CheckpointError:
        raise
    except (Exception, CheckpointException) as e:  # of files, pickles, zips and the library
        raise damaged(Path(reader.path), e) from e


def damaged(path: Path, error: BaseException, file: str = "a file") -> CheckpointError:
    """What to say of a checkpoint that looks whole and cannot be read."""
    return CheckpointError(
        f"cannot read {path}, of which {file} is missing or damaged ({root_cause(error)}); take an"
        " earlier step_N folder, in training by --resume RUN/step_N"
    )


def root_cause(error: BaseException) -> str:
    """The innermost reason of an error, in one line."""
    failures = getattr(error, "failures", None)  # the library's, by rank
    if failures:
        first = next(iter(failures.values()))
        error = first[0] if isinstance(first, tuple) else first
    while error.__cause__ is not None:
        error = error.__cause__
    if "inline_container" in str(error):  # torch.save's message for a failed write
        return "the file could not be written to its end; is the disk full?"
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")


def quiet() -> None:
    """Suppresses the library's warning about single-process use."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def check_names(path: Path, described: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Raises a CheckpointError that names tensors that are missing, too many or of other shapes."""
    wrong = []
    for title, names in (
        ("missing", tensors.keys() - described.keys()),
        ("not expected", described.keys() - tensors.keys()),
    ):
        if names:
            few = ", ".join(sorted(names)[:3])
            wrong.append(f"{len(names)} tensors {title} ({few}{', …' if len(names) > 3 else ''})")
    for name in sorted(tensors.keys() & described.keys()):
        got, want = tuple(described[name].size), tuple(tensors[name].shape)
        if got != want:
            wrong.append(f"size mismatch of {name}: {got} there, {want} in this model")
            break
    if wrong:
        raise CheckpointError(
            f"cannot go on from {path}: {'; '.join(wrong)}; to start afresh, move the folder "
            f"{path.parent} away or pass resume='never' (--resume never)"
        )
