"""An estimate: what is alive at each moment of a step, and when that is most."""

from __future__ import annotations

from dataclasses import dataclass, fields

from numsft.memory.setup import Setup
from numsft.memory.shape import ModelShape


@dataclass(frozen=True)
class Moment:
    """Bytes alive at one moment of a step.

    Attributes:
        name: Which moment.
        parameters: Weights, trained and frozen, as this GPU keeps them.
        gradients: Gradients of the trained parameters.
        optimiser: State of the optimiser, and DeepSpeed's float32 copy of the parameters.
        activations: What the backward pass needs, and its temporaries.
        head: A chunk of logits, its scratch, and the gradients that the head holds.
        other: Copies of weights in the compute dtype, gathered parameters, communication buffers, and the
            optimiser's temporaries.
    """

    name: str
    parameters: int
    gradients: int
    optimiser: int
    activations: int
    head: int
    other: int

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(int(getattr(self, part)) for part in PARTS)


PARTS = tuple(field.name for field in fields(Moment) if field.name != "name")


@dataclass(frozen=True)
class MemoryEstimate:
    """The moments of a step; `total` is the largest of their totals, each part the largest of that part.

    The parts are not all at their largest at once, so `total` is less than their sum.
    """

    moments: tuple[Moment, ...]
    shape: ModelShape
    setup: Setup

    @property
    def peak(self) -> Moment:
        """The moment that needs most."""
        return max(self.moments, key=lambda moment: moment.total)

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return self.peak.total

    def _largest(self, part: str) -> int:
        return max(int(getattr(moment, part)) for moment in self.moments)

    parameters = property(lambda self: self._largest("parameters"), doc="Bytes of parameters.")
    gradients = property(lambda self: self._largest("gradients"), doc="Most bytes of gradients.")
    optimiser = property(lambda self: self._largest("optimiser"), doc="Bytes of optimiser state.")
    activations = property(lambda self: self._largest("activations"), doc="Most bytes of activations.")
    head = property(lambda self: self._largest("head"), doc="Most bytes in the head.")
    other = property(lambda self: self._largest("other"), doc="Most bytes of copies and buffers.")
