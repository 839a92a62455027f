"""Steps cells: the ways to sample that steps.py compares, and what each costs. Speaks nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from nanospeech.config import STEPS, SampleOptions
from nanospeech.engine.sampling import EVALUATIONS, evaluation_times, time_grid

from . import steps_report

COUNTS = (3, 4, 5, 6, 7, 8, 10, 12, 16, 32)  # evaluations
UNIFORM_COUNTS = (4, 5, 6, 7, 8, 10)  # of the other time grid
ZERO_STAR_STEPS = (5, 16)  # beside the default
STRENGTHS = (0.0, 1.0, 2.0, 3.0, 4.0)
TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
INTERVALS = ((0.0, 0.1), (0.01, 1.0), (0.01, 0.1))


@dataclass(frozen=True)
class Cell:
    """One way to sample, and the line of the picture that it is a point of."""

    line: str
    options: SampleOptions
    student: bool = False  # the model's student speaks, not the model itself

    @property
    def times(self) -> list[float]:
        """When the network is evaluated."""
        o = self.options
        grid = time_grid(o.steps or STEPS, o.schedule, o.sway_sampling_coef)
        return evaluation_times(grid, o.method, o.zero_init)

    @property
    def forwards(self) -> int:
        """Passes over one utterance: two where an evaluation of the model itself is guided."""
        o = self.options
        if self.student:
            return len(self.times)
        return sum(
            2 if o.cfg_strength and o.cfg_from <= t <= o.cfg_until else 1 for t in self.times
        )

    @property
    def key(self) -> str:
        """Names the options in the file of utterances; the same ones have the same key."""
        named = asdict(self.options) | ({"student": True} if self.student else {})
        return json.dumps(named, sort_keys=True)


def cells(
    strength: float,
    temperature: float = 1.0,
    lines: Sequence[str] = steps_report.LINES,
    student_steps: Sequence[int] = (),
    rescale: float = 0.0,
) -> list[Cell]:
    """The sweep: solvers over the counts that they divide, then kinds of guidance.

    Args:
        strength: the voice's or the model's own guidance strength; with 0 there is no guidance to
            vary but it.
        temperature: the model's own.
        lines: those wanted.
        student_steps: numbers of steps that the model's student was taught, where it has one.
        rescale: the model's own share of guidance's overshoot to take back.
    """
    base = SampleOptions(
        steps=STEPS, cfg_strength=strength, temperature=temperature, cfg_rescale=rescale
    )
    found = [Cell("student", SampleOptions(steps=count), student=True) for count in student_steps]
    found += [
        Cell(method, replace(base, method=method, steps=count // each))
        for method, each in EVALUATIONS.items()
        for count in COUNTS
        if count % each == 0
    ]
    found += [
        Cell("uniform", replace(base, schedule="uniform", steps=count)) for count in UNIFORM_COUNTS
    ]
    if strength:
        found += [
            Cell("cfg-zero", replace(base, steps=steps, guidance="cfg-zero", zero_init=k))
            for steps in sorted({STEPS, *ZERO_STAR_STEPS})
            for k in (0, 1, 2)
        ]
        found += [
            Cell("interval", replace(base, cfg_from=lo, cfg_until=hi)) for lo, hi in INTERVALS
        ]
    found += [
        Cell("strength", replace(base, cfg_strength=s)) for s in sorted({strength, *STRENGTHS})
    ]
    found += [
        Cell("temperature", replace(base, temperature=t))
        for t in sorted({temperature, *TEMPERATURES})
    ]
    return [cell for cell in found if cell.line in lines]
