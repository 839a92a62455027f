"""Session: a graph and its weights in ONNX Runtime, on one of its execution providers."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakSet

import numpy as np
import onnxruntime

from nanospeech.errors import BackendError, InputError
from nanospeech.machine import cores

from . import proto
from .graph import Derived, Graph

CPU = "CPUExecutionProvider"
# what providers are called as devices; any other is its own name without "ExecutionProvider"
DEVICES = {
    "cpu": CPU,
    "gpu": "CUDAExecutionProvider",
    "directml": "DmlExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
}
END = "ExecutionProvider"
QUIET = 3  # errors alone
STARTED: WeakSet[onnxruntime.InferenceSession] = WeakSet()  # of this process and those before it


@functools.cache
def threads() -> int:
    """Threads of a session: OMP_NUM_THREADS, or as many as processors."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(limit)) if limit.isdecimal() else cores()


def device_of(provider: str) -> str:
    """The name of a provider as a device, as --device takes it."""
    named = {v: k for k, v in DEVICES.items() if k != "gpu"}
    return named.get(provider, provider.removesuffix(END).lower())


def pick_provider(device: str | None) -> str:
    """The execution provider of a device's name.

    Args:
        device: "cpu", "cuda", "coreml", "directml" and so on, or None for the CPU: others are
            taken where they are asked for.

    Raises:
        InputError: no provider of that name.
        BackendError: this onnxruntime does not have it.
    """
    if device in (None, "auto", "cpu"):
        return CPU
    there = onnxruntime.get_available_providers()
    wanted = DEVICES.get(device.lower(), device.lower().removesuffix(END.lower()) + END)
    found = {p.lower(): p for p in onnxruntime.get_all_providers()}.get(wanted.lower())
    if found is None:
        known = ", ".join(sorted(map(device_of, onnxruntime.get_all_providers())))
        raise InputError(f"device {device!r} not known; ONNX Runtime has {known}")
    if found not in there:
        raise missing(device, there)
    return found


def missing(device: str, there: Sequence[str]) -> BackendError:
    """The error of a provider that is not there."""
    finds = ", ".join(device_of(p) for p in there if p != "AzureExecutionProvider")
    return BackendError(
        f"device {device!r} is not there; this onnxruntime finds here: {finds}. Others come with"
        " other packages in its place: onnxruntime-gpu (cuda), onnxruntime-directml (Windows)"
    )


@dataclass(frozen=True)
class Place:
    """Where graphs run.

    Attributes:
        provider: one of ONNX Runtime's names.
        threads: on the CPU.
    """

    provider: str = CPU
    threads: int = 1

    def session(self, graph: Graph, stored: Mapping[str, np.ndarray]) -> Session:
        """A graph with the weights that it needs of a file's tensors."""
        return Session(graph, stored, self)


class Session:
    """A graph that can be run, by any number of threads at once.

    It is made ready when it is first run: where a voice has weights of its own, the model's are
    read but never run.

    Args:
        graph: complete.
        stored: a file's tensors.
        place: where it runs.
    """

    def __init__(self, graph: Graph, stored: Mapping[str, np.ndarray], place: Place):
        self.given = graph, stored
        self.place = place
        self.lock = threading.Lock()
        self.ready: onnxruntime.InferenceSession | None = None

    def __call__(self, **inputs: np.ndarray) -> list[np.ndarray]:
        """The graph's outputs, for its inputs by name.

        Raises:
            BackendError: the provider cannot be started.
        """
        session = self.ready or self.started()
        return session.run(None, inputs)  # type: ignore[return-value]

    def started(self) -> onnxruntime.InferenceSession:
        """ONNX Runtime's session, made by the first that asks."""
        with self.lock:
            if self.ready is None:
                self.ready = start(*self.given, self.place)
                del self.given
            return self.ready


def start(
    graph: Graph, stored: Mapping[str, np.ndarray], place: Place
) -> onnxruntime.InferenceSession:
    """ONNX Runtime's session of a graph."""
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = place.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    # plans of memory are kept for each shape, and texts have ever new lengths
    options.enable_mem_pattern = False
    # after a run the threads of one graph would spin for a while beside those of the next
    options.add_session_config_entry("session.force_spinning_stop", "1")
    values = graph.tensors(stored)
    if values:
        # these must live until the session has copied or packed them
        held = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in values.values()]
        options.add_external_initializers(list(values), held)
    providers = list(dict.fromkeys([place.provider, CPU]))
    session = onnxruntime.InferenceSession(graph.model(elsewhere), options, providers=providers)
    if place.provider not in session.get_providers():
        raise missing(device_of(place.provider), session.get_providers())
    keep_after_forks()
    STARTED.add(session)
    return session


@functools.cache
def keep_after_forks() -> None:
    """Has a forked process keep its sessions to its end: freeing one waits for its threads, which
    are not there after a fork. Runs do without them.
    """

    def keep() -> None:
        for session in STARTED:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=keep)


def elsewhere(name: str, weight: Derived) -> bytes:
    """A weight that the session is given as an array."""
    size = int(np.prod(weight.shape)) * np.dtype(weight.dtype).itemsize
    return proto.outside(name, weight.shape, weight.dtype, proto.Stored("memory", 0, size))
