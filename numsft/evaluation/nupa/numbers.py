"""Numbers as NUPA writes them: drawing one of a given length, and writing an exact value.

Integer `507`; Float `12.034`; Fraction `3/8`, irreducible; Scientific `1.25e7`. All are non-negative. Lengths
are the digits of an Integer, the decimals of a Float, the longer part of a Fraction, the mantissa's decimals
of a Scientific. Values are `Fraction`s, so no answer is ever rounded.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import gcd
from random import Random


def draw_integer(rng: Random, length: int) -> int:
    """An integer of exactly `length` digits; of one digit it may be 0."""
    return rng.randrange(10 ** (length - 1) if length > 1 else 0, 10**length)


def draw_float(rng: Random, length: int, whole_digits: int | None = None) -> str:
    """A decimal with exactly `length` decimals, the last not 0, and 1 to `length` digits before the point."""
    whole = draw_integer(rng, whole_digits or rng.randint(1, length))
    decimals = f"{rng.randrange(10 ** (length - 1)):0{length - 1}d}" if length > 1 else ""
    return f"{whole}.{decimals}{rng.randint(1, 9)}"


def draw_fraction(rng: Random, length: int) -> str:
    """An irreducible fraction, denominator above 1, whose longer part has exactly `length` digits."""
    while True:
        parts = [draw_integer(rng, length), draw_integer(rng, rng.randint(1, length))]
        rng.shuffle(parts)
        top, bottom = parts
        if top > 0 and bottom > 1 and gcd(top, bottom) == 1:
            return f"{top}/{bottom}"


@cache
def _terminating_denominators(length: int) -> list[int]:
    powers = (2**a * 5**b for a in range(4 * length) for b in range(2 * length))
    return sorted(power for power in powers if 1 < power < 10**length)


def draw_terminating_fraction(rng: Random, length: int) -> str:
    """As `draw_fraction`, with a denominator 2^a·5^b: its decimal expansion ends."""
    while True:
        bottom = rng.choice(_terminating_denominators(length))
        top = draw_integer(rng, length if len(str(bottom)) < length else rng.randint(1, length))
        if top > 0 and gcd(top, bottom) == 1:
            return f"{top}/{bottom}"


def draw_scientific(rng: Random, length: int, exponent: int) -> str:
    """A mantissa with exactly `length` decimals, the last not 0, and the given exponent."""
    return f"{rng.randint(1, 9)}.{draw_float(rng, length, 1).split('.')[1]}e{exponent}"


def value_of(text: str) -> Fraction:
    """The exact value of any of the four notations."""
    return Fraction(text)


def _shifted(value: Fraction) -> tuple[int, int]:
    """(digits, k) with value = digits / 10^k and k the fewest decimals; the expansion must end."""
    k = 0
    while value.denominator != 1:
        if gcd(value.denominator, 10) == 1:
            raise ValueError(f"{value} has no finite decimal expansion")
        value, k = value * 10, k + 1
    return int(value), k


def write_float(value: Fraction) -> str:
    """The exact decimal: no trailing zeros, but always one decimal (`3.0`)."""
    digits, k = _shifted(value)
    text = str(digits).rjust(k + 1, "0")
    return f"{text[: len(text) - k]}.{text[len(text) - k :] or '0'}"


def write_fraction(value: Fraction) -> str:
    """The irreducible fraction, always with its denominator (`3/1`)."""
    return f"{value.numerator}/{value.denominator}"


def write_scientific(value: Fraction) -> str:
    """Mantissa in [1, 10) without trailing zeros but with one decimal, then the exponent (`5.0e3`)."""
    digits, k = _shifted(value)
    text = str(digits)
    return f"{text[0]}.{text[1:].rstrip('0') or '0'}e{len(text) - 1 - k}"


def write_rounded(value: Fraction, figures: int) -> str:
    """`value` rounded half up to `figures` (at least 2) significant figures, in scientific notation."""
    digits, k = _shifted(value)
    text = str(digits)
    exponent = len(text) - 1 - k
    kept = int(text[:figures].ljust(figures, "0"))
    if len(text) > figures and text[figures] >= "5":
        kept += 1
    if kept == 10**figures:
        kept, exponent = kept // 10, exponent + 1
    return f"{str(kept)[0]}.{str(kept)[1:]}e{exponent}"
