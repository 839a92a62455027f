"""Shared: an engine, or what stands for one, has copies in no other process. Knows no engine."""

from __future__ import annotations

import copy
from typing import Any

from nanospeech.errors import InputError


class Shared:
    """What has its networks in one process: copies, deep ones too, share them; pickling is refused.

    Raises:
        InputError: it is pickled.
    """

    def __copy__(self) -> Any:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __deepcopy__(self, memo: dict) -> Any:
        return copy.copy(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InputError(
            f"a {type(self).__name__} cannot be pickled, nor a Speaker that has one: give the other"
            " process what load_engine() was given, and load the model there, once"
        )
