"""Checkpoints: sharded, written while training goes on, whole or not at all. Knows no model.

    run_dir/latest               the name of the newest complete checkpoint
    run_dir/step_00000100/       torch.distributed.checkpoint shards and .metadata
        meta.json                what is the same in every process
        rank_00000.json          what is a process's own: states of its data streams and generators
    run_dir/step_00000100.pt     the weights alone, for convert and for torch.load; big ones are a
                                 folder step_00000100.weights of safetensors (see export.py)

A checkpoint is written as step_N.part and renamed when it is complete, on disk in every process;
`latest` moves after that, so it names a complete checkpoint however a run ends.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import async_save

from nanospeech.errors import CheckpointError, InputError
from nanospeech.locks import alone
from nanospeech_torch.checkpoint_reader import (
    KnownReader,
    check_complete,
    check_names,
    complete,
    quiet,
    read_into,
    read_meta,
    root_cause,
)
from nanospeech_torch.train.scale.parallel import PATIENCE

from .disk import discard, sync, write_json
from .export import exported_bytes, write_weights
from .staging import share


def newest(folder: Path) -> Path | None:
    """The checkpoint of a run's folder that `latest` names, else its newest complete one, or None.

    A copy of a run may lack what `latest` names, or be damaged.
    """
    try:
        path = folder / (folder / "latest").read_text(encoding="utf-8").strip()
        if path.parent == folder and complete(path):
            return path
    except (OSError, ValueError):
        pass
    found = [p for p in sorted(folder.glob("step_????????")) if complete(p)]
    return found[-1] if found else None


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: run_dir.
        keep: how many to keep; older ones are deleted once a newer one is complete.
        distributed: whether there are other processes; all of them must make one of these.
        say: prints, on the main process.
    """

    def __init__(
        self,
        folder: Path,
        keep: int,
        distributed: bool = False,
        say: Callable[[str], None] = print,
    ):
        self.folder, self.keep, self.say = folder, keep, say
        # a group of its own, as its thread communicates during training
        self.group: Any = dist.new_group(timeout=PATIENCE, backend="gloo") if distributed else None
        self.rank = dist.get_rank() if distributed else 0
        self.world = dist.get_world_size() if distributed else 1
        self.pending: Future | None = None
        self.name = ""
        self.failed: BaseException | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the context no other run writes to the folder; rank 0 holds the lock for all.

        Raises:
            InputError: another run does; in every process.
        """
        with ExitStack() as stack:
            error: BaseException | None = None
            if self.rank == 0:
                try:
                    stack.enter_context(alone(self.folder, "run_dir", self.say))
                except InputError as e:
                    error = e
            if error := self.first_error(error):
                raise error if isinstance(error, InputError) else InputError(str(error))
            yield

    def newest(self) -> Path | None:
        """The checkpoint to go on from; see newest."""
        return newest(self.folder)

    def save(
        self,
        step: int,
        tensors: dict[str, Tensor],
        meta: dict[str, Any],
        mine: dict[str, Any],
        export: dict[str, Any] | None = None,
    ) -> None:
        """Begins to write a checkpoint of the tensors' present values.

        Each process copies to host memory, and writes, its share of them alone.

        Args:
            step: of the run.
            tensors: by name; plain ones are equal in every process, DTensors are sharded.
            meta: JSON values equal in every process.
            mine: this process's JSON values.
            export: written as step_N.pt, main process alone; its tensors are not copied. Without
                weights in it, step_N.weights is made from the checkpoint, with the rest in it.
        """
        self.wait()
        self.name = f"step_{step:08d}"
        part = self.folder / f"{self.name}.part"

        def prepare() -> None:
            if self.rank == 0:
                self.folder.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                self.check_room(tensors, export)
                write_json(part / "meta.json", meta)

        def describe_mine() -> None:
            # on a file system with delayed visibility, or on a machine's own
            part.mkdir(parents=True, exist_ok=True)
            write_json(part / f"rank_{self.rank:05d}.json", mine)

        if not (self.attempt(prepare) and self.attempt(describe_mine)):
            return
        writer = FileSystemWriter(part, sync_files=True)
        quiet()
        future = async_save(
            share(tensors, self.rank, self.world),
            storage_writer=writer,
            process_group=self.group,
            no_dist=self.group is None,
        )
        placed: Future = Future()
        self.pending = placed

        def finish(written: Future) -> None:  # runs in the thread that wrote
            try:
                written.result()
                if self.rank == 0:
                    self.place(part, export)
                placed.set_result(None)
            except BaseException as e:
                try:
                    self.fail(e)  # at once: the next save may be hours away
                finally:
                    placed.set_exception(e)

        future.add_done_callback(finish)  # type: ignore[union-attr]

    def place(self, part: Path, export: dict[str, Any] | None) -> None:
        """Renames a whole checkpoint, moves `latest` to it and deletes the oldest."""
        final = self.folder / self.name
        if final.exists():
            discard(final)
        sync(part)
        os.rename(part, final)
        sync(self.folder)
        self.point_to(self.name)
        if export is not None:
            self.export(export, final)
        exports = [
            p for end in (".pt", ".weights") for p in self.folder.glob(f"step_????????{end}")
        ]
        kept = sorted(self.folder.glob("step_????????")), sorted(exports)
        for old in (path for found in kept for path in found[: -self.keep]):
            try:
                discard(old)
            except OSError as e:  # as of a file that is open elsewhere; this one is complete
                self.say(f"could not delete {old}: {e}; delete it yourself")

    def point_to(self, name: str) -> None:
        """Makes `latest` name a checkpoint."""
        pointer = self.folder / "latest.part"
        pointer.write_text(name + "\n", encoding="utf-8")
        sync(pointer)
        os.replace(pointer, self.folder / "latest")
        sync(self.folder)

    def export(self, state: dict[str, Any], final: Path) -> None:
        """Writes the weights alone, after the checkpoint; a failure is only reported."""
        whole = "ema_state_dict" in state
        path = final.with_suffix(".pt" if whole else ".weights")
        part = path.with_suffix(".pt.part")
        try:
            if not whole:
                return write_weights(final, path, state)
            torch.save(state, part)
            sync(part)
            os.replace(part, path)
        except (OSError, RuntimeError, SafetensorError, CheckpointError) as e:
            part.unlink(missing_ok=True)
            self.say(f"could not write {path}: {root_cause(e)}; {path.stem}/ is complete")

    def set_aside(self, step: int) -> None:
        """Moves checkpoints beyond a step away when a run starts or resumes there.

        They and a copy of log.csv go to a folder before_N, so that they are kept, and neither
        retention nor the next start takes them for this run's.
        """
        if self.rank == 0 and self.folder.is_dir():
            later = [
                p
                for p in self.folder.iterdir()
                if (m := re.fullmatch(r"step_(\d{8})(\.pt|\.weights)?", p.name))
                and int(m[1]) > step
            ]
            if later:
                number = 1
                while (aside := self.folder / f"before_{number}").exists():
                    number += 1
                aside.mkdir()
                log = self.folder / "log.csv"
                if log.is_file():
                    shutil.copy2(log, aside)
                if step >= 0 and complete(self.folder / f"step_{step:08d}"):
                    self.point_to(f"step_{step:08d}")
                else:
                    (self.folder / "latest").unlink(missing_ok=True)
                for path in sorted(later, reverse=True):
                    os.rename(path, aside / path.name)
                beyond = f" beyond step {step}" if step >= 0 else ""
                self.say(f"{len(later)} checkpoints and exports{beyond} are now in {aside}")
        self.barrier()

    def attempt(self, action: Callable[[], None]) -> bool:
        """Runs a function that may fail in one process; returns whether it succeeded in all."""
        error: BaseException | None = None
        try:
            action()
        except Exception as e:
            error = e
        if (error := self.first_error(error)) is None:
            return True
        self.fail(error)
        return False

    def check_room(self, tensors: dict[str, Tensor], export: dict[str, Any] | None) -> None:
        """Raises OSError where the disk cannot hold the tensors."""
        parts = [tensors, *(v for v in (export or {}).values() if isinstance(v, dict))]
        found = [t for part in parts for t in part.values() if isinstance(t, Tensor)]
        need = sum(t.numel() * t.element_size() for t in found)
        if export is not None and "ema_state_dict" not in export:
            need += exported_bytes(tensors)
        free = shutil.disk_usage(self.folder).free
        if free < need:
            raise OSError(errno.ENOSPC, f"no space left: {need / 2**30:.2f} GiB are needed")

    def wait(self) -> bool:
        """Waits until the checkpoint being written is complete; returns whether it succeeded."""
        pending, self.pending = self.pending, None
        if pending is None:
            return self.failed is None
        error: BaseException | None = None
        try:
            pending.result()
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # the library's is not an Exception
            error = e
        if (error := self.first_error(error)) is None:
            self.failed = None
            return True
        if error is not self.failed:
            self.fail(error)
        return False

    def fail(self, error: BaseException) -> None:
        """Reports a checkpoint that could not be written, and deletes its parts."""
        self.failed = error
        if self.rank != 0:
            return
        shutil.rmtree(self.folder / f"{self.name}.part", ignore_errors=True)
        good = self.newest()
        try:
            free = f"{shutil.disk_usage(self.folder).free / 2**30:.1f} GiB are free there"
        except OSError:
            free = "the folder cannot be read"
        self.say(
            f"could not write checkpoint {self.name} in {self.folder}: {root_cause(error)}; "
            f"{free}. The last good one is {good.name if good else 'none'}; the run goes on and "
            "will try again at its next save. Make room, or choose another run_dir."
        )

    def meta(self, path: Path) -> dict[str, Any]:
        """The meta.json of a checkpoint.

        Raises:
            CheckpointError: it is incomplete or damaged.
        """
        return read_meta(path)

    def load(
        self, path: Path, tensors: dict[str, Tensor], reader: KnownReader | None = None
    ) -> None:
        """Reads a checkpoint into `tensors`, in place, however many processes wrote it.

        Args:
            path: of the checkpoint.
            tensors: by name.
            reader: of the checkpoint, where it is open already.

        Raises:
            CheckpointError: incomplete, damaged, or of other tensors.
        """
        reader = reader or self.open(path)
        check_names(path, reader.known.state_dict_metadata, tensors)
        read_into(tensors, reader, self.group)

    def open(self, path: Path) -> KnownReader:
        """A checkpoint's reader, with the library's metadata of each tensor by name.

        Raises:
            CheckpointError: it is incomplete.
        """
        check_complete(path)
        return KnownReader(path)

    def clear_parts(self) -> None:
        """Makes the folder, and deletes partial checkpoints of killed processes.

        Raises:
            InputError: it cannot be written to, which the first save would find too late.
        """
        if self.rank == 0:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=self.folder):
                    pass
            except OSError as e:
                raise InputError(
                    f"cannot write to run_dir {self.folder}: {e}; choose another"
                ) from e
            for left in self.folder.glob("*.part"):
                with suppress(OSError):  # of a file that is open elsewhere; it is no checkpoint
                    is_folder = left.is_dir() and not left.is_symlink()
                    shutil.rmtree(left) if is_folder else left.unlink()
        self.barrier()

    def barrier(self) -> None:
        if self.group is not None:
            dist.barrier(group=self.group)

    def first_error(self, error: BaseException | None) -> BaseException | None:
        """This process's error, or else the first of another's; None if all succeeded."""
        if self.group is None:
            return error
        found: list[Any] = [None] * self.world
        mine = None if error is None else root_cause(error)
        dist.all_gather_object(found, mine, group=self.group)
        others = (OSError(f"process {rank}: {told}") for rank, told in enumerate(found) if told)
        return error or next(others, None)
