"""Settings of a student: which of its teacher's ways it learns, and how. No network, no losses."""

from __future__ import annotations

from dataclasses import dataclass

from nanospeech.config import option
from nanospeech.errors import InputError

METHODS = ("trajectory", "two-stage", "shortcut", "end")
WHOLE = ("trajectory", "end")  # methods that begin at the noise and learn all steps together
ALL = "all"


def check_folders(name: str, given: str | list | None) -> None:
    """Raises InputError where an option that is a folder or a list of folders holds others."""
    if isinstance(given, (list, tuple)) and not all(isinstance(f, str) and f for f in given):
        raise InputError(f"{name} is {list(given)}; name run folders, as in '[runs/a, runs/b]'")


@dataclass(frozen=True)
class DistillConfig:
    """What a student learns of its teacher."""

    voice: str | None = option(
        None,
        "teach this built-in voice, with its weights if it has some; or all: every voice with its "
        "own, on clips whose speaker is its name",
    )
    method: str = option(
        "two-stage",
        "trajectory: steps alone, on the teacher's own way; two-stage: 2 x steps, then steps; "
        "shortcut: 1, 2, 4, ... 2 x steps at once; end: where the teacher's way ends, learnt"
        " through all steps",
    )
    steps: int = option(4, "steps of the solver, each one evaluation, that the model is made for")
    max_strength: float = option(5.0, "guidance strengths of 0 to this are learnt")
    substeps: int = option(
        2, "steps of the teacher for each one of the student, of trajectory and end"
    )
    also: list[int] = option(
        (),
        "trajectory: other numbers of steps that are learnt, in turn with `steps`; each a divisor"
        " of steps x substeps",
    )
    listener: str | list | None = option(
        None,
        "end: run folder of a listener (model: listener), whose words it learns too; or a list of"
        " several, one of which hears each step",
    )
    words: float = option(0.05, "end: weight of the cross entropy of what the listener hears")
    second_stage: float = option(0.5, "share of the run at which two-stage halves its steps")
    keep: float = option(
        0.25, "share of steps in which the finest grid goes on to be learnt of the teacher"
    )

    def __post_init__(self):
        if self.method not in METHODS:
            raise InputError(f"distill.method is {self.method!r}; choose from {METHODS}")
        if not 1 <= self.steps <= 64:
            raise InputError(f"distill.steps is {self.steps}; choose 1 to 64, best 4")
        if self.method == "shortcut" and self.steps & (self.steps - 1):
            raise InputError(f"distill.steps is {self.steps}; for shortcut choose 1, 2, 4, 8, ...")
        if not 1 <= self.substeps <= 64:
            raise InputError(f"distill.substeps is {self.substeps}; choose 1 to 64, best 2")
        if not 0 < self.max_strength <= 100:
            raise InputError(f"distill.max_strength is {self.max_strength}; choose 0 to 100")
        object.__setattr__(self, "also", tuple(self.also))
        finest = self.steps * self.substeps
        if any(type(n) is not int or n < 1 or finest % n for n in self.also):
            raise InputError(
                f"distill.also is {list(self.also)}; choose divisors of {finest}, the teacher's"
                " steps (distill.steps x distill.substeps)"
            )
        if self.also and self.method != "trajectory":
            raise InputError(f"distill.also is for trajectory; distill.method is {self.method}")
        check_folders("distill.listener", self.listener)
        if self.listener and self.method != "end":
            raise InputError(f"distill.listener is for end; distill.method is {self.method}")
        if not self.words >= 0:
            raise InputError(f"distill.words is {self.words}; choose 0 or more, best 0.05")
        if self.voice == ALL and self.method not in WHOLE:
            raise InputError(
                f"distill.voice is all and distill.method {self.method}; all voices learn by"
                " trajectory or end, or name one voice"
            )
        for name in ("second_stage", "keep"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"distill.{name} is {getattr(self, name)}; choose 0 to 1")

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of steps that are learnt, ascending; the last of the teacher.

        By trajectory and end all are learnt of it.
        """
        if self.method in WHOLE:
            return tuple(sorted({self.steps, *self.also}))
        if self.method == "two-stage":
            return self.steps, 2 * self.steps
        return tuple(2**k for k in range(self.steps.bit_length() + 1))
