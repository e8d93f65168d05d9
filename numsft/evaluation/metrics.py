"""How far off the numbers are: log-MAE, digits place by place, sign and length, from exact values.

Digits are read from exact fractions, never from a float's repr. Each metric of a question is one entry of a
column, NaN where the question has no part in it, so that a metric is the mean of a column and its interval a
resampling of its rows.

| column | entry | over |
|---|---|---|
| `ln_eps` | abs(L(p) - L(g)), L(x) = sgn(x) ln(abs(x) + 1e-8), L(0) = 0 | both parsed |
| `log10p1` | the same with L(x) = sgn(x) log10(1 + abs(x)), x clipped to ±1e10 | both parsed |
| `ln1p` | the same with L(x) = sgn(x) ln(1 + abs(x)), not clipped | both parsed |
| `sign`, `length` | 1 where the sign (of 0: none), the number of integer digits is right | both parsed |
| `mae i`, `acc i` | digit difference; 1 where the digit is equal and there | both parsed, g has place i |
| `union_mae i`, `union_acc i` | the same; the digit must be there in both | both parsed, g or p has place i |

`ln_eps` is the form in the released DEL code (arXiv 2605.20369), which calls it signed log and skips what it
cannot parse; `log10p1`, its clipping and its skipping are NTL's log-MAE (arXiv 2411.02083).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import ndarray

INTEGER_PLACES = (0, 1, 2, 3, 4)
MAX_DECIMALS = 10
"""Decimal places that are tabulated; golds have at most 7 in the benchmarks."""

NTL_CLIP = 10**10
_EPSILON = Fraction(1, 10**8)

_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)(?P<top>{_DECIMAL})(?:[eE](?P<exponent>[+-]?[0-9]{{1,4}}))?"
    r"(?:/(?P<bottom>[0-9]+))?(?P<percent>\\?%)?"
)
_FRAC = re.compile(r"\\[dt]?frac\{([0-9]+)\}\{([0-9]+)\}")


@dataclass(frozen=True)
class Value:
    """A number as written.

    Attributes:
        value: Its exact value, percent sign aside.
        written_decimals: Digits after the point, as written; 0 for a fraction or with an exponent.
        percent: Whether a percent sign follows.
    """

    value: Fraction
    written_decimals: int = 0
    percent: bool = False

    @cached_property
    def integer_digits(self) -> int:
        """Digits before the point; 1 for numbers below 1."""
        return int(Decimal(int(abs(self.value))).adjusted()) + 1

    @cached_property
    def decimals(self) -> float:
        """Decimals that the value needs; infinite where its expansion does not end."""
        rest = self.value.denominator
        powers = []
        for prime in (2, 5):
            power = 0
            while rest % prime == 0:
                rest, power = rest // prime, power + 1
            powers.append(power)
        return max(powers) if rest == 1 else math.inf

    def needs(self, place: int) -> bool:
        """Whether its value has a digit at 10^place: leading and trailing zeros have none."""
        return place < self.integer_digits if place >= 0 else -place <= self.decimals

    def has(self, place: int) -> bool:
        """The same, but a trailing zero that was written counts."""
        return self.needs(place) or 0 < -place <= self.written_decimals

    def digit(self, place: int) -> int:
        """The digit at 10^place of its exact expansion, 0 beyond either end."""
        magnitude = abs(self.value)
        shifted = magnitude // 10**place if place >= 0 else magnitude * 10**-place // 1
        return int(shifted) % 10

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.value > 0) - (self.value < 0)


def read_value(text: str | None) -> Value | None:
    r"""Read one whole number: `18`, `-3.5`, `1,234`, `2/3`, `\frac{2}{3}`, `1e-5`, `25%`; None for all else.

    This reads what extraction left (`extracted`) and golds; it does not search in text.
    """
    cleaned = _FRAC.sub(r"\1/\2", (text or "").strip()).replace("−", "-")
    match = _NUMBER.fullmatch(cleaned)
    if match is None:
        return None
    top = match["top"].replace(",", "")
    value = Fraction(Decimal(top)) * Fraction(10) ** int(match["exponent"] or 0)
    if match["bottom"]:
        bottom = Fraction(Decimal(match["bottom"]))
        if bottom == 0:
            return None
        value /= bottom
    plain = not (match["bottom"] or match["exponent"])
    return Value(
        -value if match["sign"] == "-" else value,
        len(top.partition(".")[2]) if plain else 0,
        bool(match["percent"]),
    )


def read_pair(gold: str, extracted: str, correct: bool) -> tuple[Value, Value | None] | None:
    """Return gold and prediction as numbers; None where the gold is no number.

    `25%` counts as 25. Only where the row was judged correct and the gold stands closer to a hundredth of it
    is it 0.25: the rule book that scored the row then read it so.
    """
    wanted, found = read_value(gold), read_value(extracted)
    if wanted is None:
        return None
    if found and found.percent and not wanted.percent and correct:
        hundredth = found.value / 100
        if abs(hundredth - wanted.value) < abs(found.value - wanted.value):
            found = Value(hundredth, found.written_decimals + 2)
    return wanted, found


def decimal_places(golds: Iterable[Value]) -> list[int]:
    """-1, -2, ... to the last decimal that some gold needs, at most `MAX_DECIMALS`; endless ones aside."""
    deepest = max((int(gold.decimals) for gold in golds if gold.decimals != math.inf), default=0)
    return [-j for j in range(1, min(deepest, MAX_DECIMALS) + 1)]


def numeric_columns(
    pairs: Sequence[tuple[Value, Value | None]], *, worst: bool = False
) -> dict[str, ndarray]:
    """Return the columns of the module's table, float64 `[n]`, for the pairs of a benchmark.

    A gold has the decimals it needs, not its trailing zeros; one whose expansion does not end (2/3) has none.

    Args:
        pairs: Gold and prediction (None: not parsed).
        worst: Count an unparsed prediction too: as 0 in the errors, as wrong in the accuracies. Else its
            entries are NaN.
    """
    import numpy as np

    places = [*INTEGER_PLACES, *decimal_places(gold for gold, _ in pairs)]
    names = ["ln_eps", "log10p1", "ln1p", "sign", "length"]
    names += [f"{name} {i}" for name in ("mae", "acc", "union_mae", "union_acc") for i in places]
    columns = {name: np.full(len(pairs), np.nan) for name in names}
    for row, (gold, found) in enumerate(pairs):
        if found is None and not worst:
            continue
        entries = _entries(gold, found or Value(Fraction(0)), found is not None, places)
        for name, value in entries.items():
            columns[name][row] = value
    return columns


def _entries(gold: Value, found: Value, parsed: bool, places: Sequence[int]) -> dict[str, float]:
    entries: dict[str, float] = {
        "ln_eps": abs(ln_eps(found.value) - ln_eps(gold.value)),
        "log10p1": abs(log10p1(found.value) - log10p1(gold.value)),
        "ln1p": abs(ln1p(found.value) - ln1p(gold.value)),
        "sign": parsed and found.sign == gold.sign,
        "length": parsed and found.integer_digits == gold.integer_digits,
    }
    for place in places:
        wanted = gold.needs(place) and (place >= 0 or gold.decimals != math.inf)
        if not (wanted or (parsed and found.needs(place))):
            continue
        error = abs(found.digit(place) - gold.digit(place))
        equal = parsed and found.has(place) and error == 0
        if wanted:
            entries[f"mae {place}"] = error
            entries[f"acc {place}"] = equal
        entries[f"union_mae {place}"] = error
        entries[f"union_acc {place}"] = equal and gold.has(place)
    return entries


def ln_eps(x: Fraction) -> float:
    """sgn(x) ln(|x| + 1e-8), 0 for 0; not clipped."""
    return _ln(abs(x) + _EPSILON) * ((x > 0) - (x < 0))


def log10p1(x: Fraction) -> float:
    """sgn(x) log10(1 + |x|) of x clipped to ±1e10."""
    return ln1p(max(min(x, Fraction(NTL_CLIP)), Fraction(-NTL_CLIP))) / math.log(10)


def ln1p(x: Fraction) -> float:
    """sgn(x) ln(1 + |x|); not clipped."""
    return _ln(1 + abs(x)) * ((x > 0) - (x < 0))


def _ln(x: Fraction) -> float:
    try:
        return math.log(float(x))
    except (OverflowError, ValueError):  # beyond float's range at either end
        return math.log(x.numerator) - math.log(x.denominator)
