"""Draws new values for a question's numerals: small steps, or a chosen number of digits.

Small steps stay within 20 %, or two units of the last digit where that is more: 16 may become 13 to 19, 3 may
become 2, 4 or 5. Trailing zeros stay (120 to 100, 110, 130 or 140), unless one unit of the last non-zero
digit is more than 20 %: then steps are half of it (30 to 25 or 35), or a tenth (10 to 11 or 12).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import prod

from numsft.evaluation.remap.binding import Program
from numsft.evaluation.remap.numerals import Numeral, write_like
from numsft.evaluation.remap.words import explicit_values, landmarks

TRIES = 2000
_COMPARES = re.compile(
    r"\b(?:over|above|below|under|beyond|exceed\w*|at least|at most|up to|limit\w*|max\w*|min\w*|first|if"
    r"|until|unless|capacity|enough|fits?|qualif\w*|discount|free)\b",
    re.IGNORECASE,
)
_BOUNDED_UNIT = re.compile(
    r"\s*(?:%|percent|-?\s?(?:\w+ )?(?:days?|hours?|minutes?|seconds?|weeks?|months?|years?|times|feet|foot"
    r"|inch\w*|age|old)\b)",
    re.IGNORECASE,
)


def last_digit_unit(numeral: Numeral) -> Fraction:
    """Returns the unit of the last non-zero digit: 1 for 16, 100 for 300, 1/10 for 1.50."""
    unit = Fraction(1, 10**numeral.decimals)
    while (numeral.value / (unit * 10)).denominator == 1:
        unit *= 10
    return unit


def small_steps(numeral: Numeral, question: str, bounds: frozenset[Fraction]) -> list[Fraction]:
    """Returns the values that `numeral` may take, its own first.

    Each has as many digits as the old value, is neither 0, 1 nor 100, at most 100 for a percent, on the same
    side of every bound, and goes with the article before it ("an 8", "a 9").
    """
    unit, fifth = last_digit_unit(numeral), numeral.value / 5
    finest = Fraction(1, 10**numeral.decimals)
    reach = max(fifth, 2 * unit) if unit == finest else fifth
    if unit > fifth and unit > finest:
        unit = unit / 2 if unit / 2 <= fifth and (unit / 2 / finest).denominator == 1 else unit / 10
    count = int(reach / unit)
    values = [numeral.value + k * unit for k in range(-count, count + 1) if k]
    return [numeral.value] + [value for value in values if _fits(numeral, value, question, bounds)]


def small_draws(program: Program, seed: str) -> Iterator[dict[int, Fraction]]:
    """Yields new values by numeral, in seeded order; first draws in which every numeral changes."""
    rng = random.Random(seed)
    bounds = numeral_bounds(program)
    options = [small_steps(program.numerals[i], program.question, bounds) for i in program.free]
    moved = [values[1:] for values in options]
    for pools in (moved, options):
        if not all(pools):
            continue
        if prod(len(pool) for pool in pools) <= TRIES:
            draws = list(product(*pools))
            rng.shuffle(draws)
        else:
            draws = [tuple(rng.choice(pool) for pool in pools) for _ in range(TRIES)]
        for draw in draws:
            changed = sum(new != pool[0] for new, pool in zip(draw, options, strict=True))
            if changed and (pools is moved or changed < len(options)):
                yield dict(zip(program.free, draw, strict=True))


def range_draws(program: Program, level: int, seed: str) -> Iterator[dict[int, Fraction]]:
    """Yields draws in which as many whole numerals as the steps allow have the digits of `level`.

    Level 1 keeps the number of digits; level L from 2 on draws L + 1 digits, so that 2 is 100 to 999 and 6 is
    1,000,000 to 9,999,999 (the levels of GSM-Ranges, arXiv 2502.08680). Percents, decimals and numerals of a
    time or length keep to small steps. Divisions rarely come out even for free draws, so the second half of
    the tries multiplies the old values.
    """
    rng = random.Random(seed)
    bounds = numeral_bounds(program)
    raisable = [
        i
        for i in program.free
        if not program.numerals[i].percent
        and not program.numerals[i].decimals
        and not _BOUNDED_UNIT.match(program.question[program.numerals[i].end :])
    ]
    small = {i: small_steps(program.numerals[i], program.question, bounds) for i in program.free}
    for count in range(len(raisable), 0, -1):
        for attempt in range(TRIES // 4):
            raised = rng.sample(raisable, count)
            values = {i: rng.choice(small[i]) for i in program.free}
            olds = {i: program.numerals[i].value for i in raised}
            if attempt < TRIES // 8:
                ordered = sorted(raised, key=lambda i: olds[i])
                fresh = sorted(_range_value(rng, olds[i], level) for i in raised)
                if level == 1:
                    fresh = [_range_value(rng, olds[i], level) for i in ordered]
                values |= dict(zip(ordered, fresh, strict=True))
            else:
                shared = _factor(rng, max(olds.values()), level)
                one_factor = rng.random() < 0.5
                values |= {
                    i: old * (shared if one_factor else _factor(rng, old, level)) for i, old in olds.items()
                }
            if all(_readable(program.numerals[i], values[i], program.question) for i in raised):
                yield values


def numeral_bounds(program: Program) -> frozenset[Fraction]:
    """Returns what no numeral may cross: bounds of units, and the numbers that the question names."""
    fixed = {numeral.value for numeral in program.numerals if numeral.fixed}
    named = {value for value in explicit_values(program.question) | fixed if value > 1}
    return landmarks(program.question) | named


def acceptable(program: Program, values: dict[int, Fraction], level: int | None = None) -> bool:
    """Returns whether the solution still makes sense for `values`.

    Every sub-expression keeps its sign and whether it is whole, every step its side of 1 and at most its
    decimals, numerals their order among each other and (for small steps, or where the question compares or
    limits something) among the steps' values. The answer differs; for small steps it has as many digits.
    """
    try:
        rows = program.literals(values)
        pairs = list(zip(program.steps, rows, strict=True))
        results = [step.expression.evaluate(row) for step, row in pairs]
        for step, row in pairs:
            for old, new in zip(step.expression.nodes(), step.expression.nodes(row), strict=True):
                if _sign(old) != _sign(new) or (old.denominator == 1) != (new.denominator == 1):
                    return False
    except ZeroDivisionError:
        return False
    for step, new in zip(program.steps, results, strict=True):
        if _sign(step.value - 1) != _sign(new - 1) or not _as_short(new, step.value):
            return False
    if results[-1] == program.gold:
        return False
    if level is None and len(str(abs(int(results[-1])))) != len(str(abs(int(program.gold)))):
        return False
    return _keeps_order(program, values, results, level)


def _keeps_order(
    program: Program, values: dict[int, Fraction], results: Sequence[Fraction], level: int | None
) -> bool:
    plain = [i for i in program.free if not program.numerals[i].percent]
    percents = [i for i in program.free if program.numerals[i].percent]
    old = [program.numerals[i].value for i in plain]
    new = [values[i] for i in plain]
    if level is None or _COMPARES.search(program.question):
        old += [step.value for step in program.steps]
        new += results
    same = _ordering(old) == _ordering(new)
    return same and _ordering([program.numerals[i].value for i in percents]) == _ordering(
        [values[i] for i in percents]
    )


def _ordering(values: Sequence[Fraction]) -> list[int]:
    return [_sign(a - b) for position, a in enumerate(values) for b in values[:position]]


def _fits(numeral: Numeral, value: Fraction, question: str, bounds: frozenset[Fraction]) -> bool:
    if value <= 0 or value in (1, 100) or (numeral.percent and value > 100):
        return False
    if _sign(numeral.value - 1) != _sign(value - 1) or len(str(int(value))) != len(str(int(numeral.value))):
        return False
    same_side = all(_sign(numeral.value - bound) == _sign(value - bound) for bound in bounds)
    return same_side and _readable(numeral, value, question)


def _readable(numeral: Numeral, value: Fraction, question: str) -> bool:
    article = re.search(r"\b(an?)\s+\$?$", question[: numeral.start], re.IGNORECASE)
    if not article:
        return True
    text = write_like(numeral, value).replace(",", "")
    digits = text.partition(".")[0]
    vowel = digits.startswith("8") or (digits.startswith(("11", "18")) and len(digits) % 3 == 2)
    return bool((article[1].lower() == "an") is vowel)


def _range_value(rng: random.Random, old: Fraction, level: int) -> Fraction:
    low, high = _range(old, level)
    unit = rng.choice((1, 1, 1, 2, 3, 4, 5, 10, 12, 20, 60))
    return Fraction(max(low, rng.randrange(low, high) // unit * unit))


def _factor(rng: random.Random, old: Fraction, level: int) -> int:
    low, high = _range(old, level)
    least, most = -(-low // int(old)), (high - 1) // int(old)
    return rng.randint(least, max(least, most))


def _range(old: Fraction, level: int) -> tuple[int, int]:
    digits = len(str(int(old))) if level == 1 else level + 1
    return max(2, 10 ** (digits - 1)), 10**digits


def _as_short(new: Fraction, old: Fraction) -> bool:
    """Whether `new` needs no more decimals than `old`, where that has a last one."""
    for scale in (Fraction(10**decimals) for decimals in range(13)):
        if (old * scale).denominator == 1:
            return (new * scale).denominator == 1
    return True


def _sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)
