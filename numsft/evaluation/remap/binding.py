"""Binds each literal of a solution to what it is: a numeral of the question, an earlier step, or a constant.

A literal that could be two things is refused, never guessed: in "2 bolts of blue and half that much white",
solved by 2/2, both literals look like the numeral 2.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from numsft.evaluation.remap.annotations import Step, parse_solution
from numsft.evaluation.remap.numerals import Numeral, find_numerals, fixed_fractions
from numsft.evaluation.remap.rejection import Rejected
from numsft.evaluation.remap.words import explicit_values, thing_values, unit_values

# Questions whose gold an audit by hand found wrong, or one of two fair readings: the first 16 hex digits of
# the sha256 of the text. They are rows of the test split.
DISPUTED = frozenset(
    {
        "399133d2721b5131",  # 182: half of an age now, or then
        "ff998bb1e3fe4cff",  # 454: adds 1 where two people eat the same
        "d28d879c9589742f",  # 590: whether the host takes a seat
        "fd00105695254e90",  # 749: students divided by groups, subtracted from groups
        "fbfe67e3ade2b0bd",  # 768: twice as many now, or after more books
        "c4de7ed44de7a40c",  # 835: "a total of" for each, or for all one after the other
    }
)


@dataclass(frozen=True)
class Source:
    """What a literal is.

    Attributes:
        kind: `numeral`, `step` or `constant`.
        index: Of the numeral or step; 0 for a constant.
        value: The literal's value in the original; for a percent this tells 40 from 0.4.
    """

    kind: str
    index: int
    value: Fraction


@dataclass(frozen=True)
class Program:
    """A question whose answer can be computed for other numerals.

    Attributes:
        question: Its text.
        numerals: Of the question, fixed ones too.
        steps: As annotated.
        sources: For each step, the source of each literal.
        gold: The original answer, the last step's value.
    """

    question: str
    numerals: tuple[Numeral, ...]
    steps: tuple[Step, ...]
    sources: tuple[tuple[Source, ...], ...]
    gold: Fraction

    @property
    def free(self) -> tuple[int, ...]:
        """The indices of the numerals that may change."""
        return tuple(i for i, numeral in enumerate(self.numerals) if not numeral.fixed)

    def literals(self, values: dict[int, Fraction]) -> list[list[Fraction]]:
        """Returns each step's literals where numeral `i` is `values[i]` (unnamed ones stay).

        Raises:
            ZeroDivisionError: If a divisor becomes 0.
        """
        rows: list[list[Fraction]] = []
        results: list[Fraction] = []
        for step, sources in zip(self.steps, self.sources, strict=True):
            row = []
            for source in sources:
                if source.kind == "step":
                    row.append(results[source.index])
                elif source.kind == "numeral":
                    numeral = self.numerals[source.index]
                    row.append(values.get(source.index, numeral.value) * source.value / numeral.value)
                else:
                    row.append(source.value)
            rows.append(row)
            results.append(step.expression.evaluate(row))
        return rows

    def run(self, values: dict[int, Fraction]) -> list[Fraction]:
        """Returns each step's value, the answer last. Raises `ZeroDivisionError` as `literals` does."""
        return [
            step.expression.evaluate(row) for step, row in zip(self.steps, self.literals(values), strict=True)
        ]


def bind(question: str, answer: str) -> Program:
    """Binds the literals of a GSM8K item.

    Args:
        question: The question's text.
        answer: The annotated solution, ending in `#### gold`.

    Raises:
        Rejected: With the first of the reasons that applies.
    """
    if hashlib.sha256(question.encode()).hexdigest()[:16] in DISPUTED:
        raise Rejected("disputed gold")
    steps, gold = parse_solution(answer)
    return bind_steps(question, steps, gold)


def bind_steps(question: str, steps: tuple[Step, ...], gold: Fraction) -> Program:
    """Binds the literals of parsed steps; see `bind`."""
    numerals = find_numerals(question)
    free = [i for i, numeral in enumerate(numerals) if not numeral.fixed]
    if not free:
        raise Rejected("no numeral")
    explicit = explicit_values(question) | _fixed_constants(question, numerals)
    meant = explicit | unit_values(question)
    _check_numerals(numerals, free, meant)
    constants = meant | thing_values(question)

    sources: list[tuple[Source, ...]] = []
    for number, step in enumerate(steps):
        earlier = [earlier_step.value for earlier_step in steps[:number]]
        sources.append(
            tuple(_source(value, numerals, free, earlier, constants) for value in step.expression.literals)
        )
    flat = [source for row in sources for source in row]
    _check_uses(numerals, free, steps, flat)
    _check_constants(numerals, free, flat, explicit)
    return Program(question, numerals, steps, tuple(sources), gold)


def _fixed_constants(question: str, numerals: tuple[Numeral, ...]) -> frozenset[Fraction]:
    values = {numeral.value for numeral in numerals if numeral.fixed}
    for part, whole in fixed_fractions(question):
        if whole:
            values |= {part, whole, part / whole, whole - part, 1 - part / whole, 1 + part / whole}
    return frozenset(values)


def _check_numerals(numerals: tuple[Numeral, ...], free: list[int], constants: frozenset[Fraction]) -> None:
    seen: set[Fraction] = set()
    for i in free:
        readings = numerals[i].readings
        if seen & set(readings):
            raise Rejected("duplicate numeral", numerals[i].text)
        if constants & set(readings):
            raise Rejected("implicit word", numerals[i].text)
        seen |= set(readings)


def _source(
    value: Fraction,
    numerals: tuple[Numeral, ...],
    free: list[int],
    earlier: list[Fraction],
    constants: frozenset[Fraction],
) -> Source:
    as_numeral = [i for i in free if value in numerals[i].readings]
    as_step = [i for i, step_value in enumerate(earlier) if step_value == value]
    if as_numeral and as_step:
        raise Rejected("step or numeral", str(value))
    if len(as_step) > 1:
        raise Rejected("two equal steps", str(value))
    if as_step and value in constants:
        raise Rejected("step or constant", str(value))
    if as_numeral:  # one at most: equal readings were refused
        return Source("numeral", as_numeral[0], value)
    if as_step:
        return Source("step", as_step[0], value)
    if value in constants:
        return Source("constant", 0, value)
    raise Rejected("unexplained constant", str(value))


def _check_uses(
    numerals: tuple[Numeral, ...], free: list[int], steps: tuple[Step, ...], flat: list[Source]
) -> None:
    for i in free:
        uses = sum(source.kind == "numeral" and source.index == i for source in flat)
        if uses > 1:
            raise Rejected("literal reused", numerals[i].text)
        if uses == 0:
            raise Rejected("unused numeral", numerals[i].text)
    used = {source.index for source in flat if source.kind == "step"}
    if unused := [number for number in range(len(steps) - 1) if number not in used]:
        raise Rejected("unused step", str(steps[unused[0]].value))


def _check_constants(
    numerals: tuple[Numeral, ...], free: list[int], flat: list[Source], explicit: frozenset[Fraction]
) -> None:
    """Refuses a constant that the question only suggests and that two numerals could make (7 = 10 - 3)."""
    made = set()
    for i, j in permutations(free, 2):
        a, b = numerals[i].value, numerals[j].value
        made |= {a + b, a - b, a * b, a / b}
    for source in flat:
        if source.kind == "constant" and source.value not in explicit and source.value in made:
            raise Rejected("unexplained constant", f"{source.value}, which two numerals also make")
