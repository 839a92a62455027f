"""Finds what would make a host wait for its device, on a machine that has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
WAITS = {
    aten._local_scalar_dense,  # .item(), float(x), bool(x), if x: ...
    aten.nonzero,
    aten.masked_select,
    aten.equal,
    aten._unique2,
    aten.unique_dim,
    aten.bincount,
}
BY_MASK = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
METHODS = ("cpu", "numpy", "tolist")  # on a CPU tensor these reach no operator


class Watch(TorchDispatchMode):
    """Refuses operators whose result the host must see."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        waits = packet in WAITS
        if packet in BY_MASK:
            waits = any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        if packet is aten.repeat_interleave:
            waits = (kwargs or {}).get("output_size") is None
        if waits:
            raise AssertionError(f"{func} makes the host wait for the device")
        return func(*args, **(kwargs or {}))


@contextmanager
def forbid_sync() -> Iterator[None]:
    """Fails with an AssertionError where code within would wait for a device."""

    def refuse(name: str) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError(f".{name}() makes the host wait for the device")

        return method

    with ExitStack() as stack:
        for name in METHODS:
            stack.enter_context(patch.object(torch.Tensor, name, refuse(name)))
        stack.enter_context(Watch())
        yield
