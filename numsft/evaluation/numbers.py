r"""Exact numbers in text: what is written is what is read, as a `Fraction`, with no float in between.

`find_numbers` lists the numbers of a text in order, `parse_number` reads a text that holds exactly one. Read
are signs (also the Unicode minus), `,ddd` thousands, a leading point, exponents, `3 \times 10^5`, powers,
fractions (`1/2`, `\frac{1}{2}`, ½), mixed numbers, currency, percent and the words hundred to trillion.

Numerals that are not one number are skipped whole, so that no piece of them is taken for an answer: times and
ratios (`10:30`), ranges (`5-7`), dates and chains (`3/4/5`), versions (`1.2.3`), ordinals, and digits inside
words (`float64`) or indices (`x_1`). A decimal comma is not read: `3,5` is two numbers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

# Python refuses to turn longer strings into int; nothing sensible is lost.
_MAX_DIGITS = 4000

_SIGN = "+\\-−–﹣－"
_MINUS = frozenset("-−–﹣－")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}

_GROUP = r"(?:,|\{,\}|,\\!|\\,|[\u00a0\u202f\u2009]|_)"
_INT = rf"(?:[1-9][0-9]{{0,2}}(?:{_GROUP}[0-9]{{3}}){{1,30}}(?!,?[0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_INT}(?:\.[0-9]+)?|\.[0-9]+)"
_SIGNED = rf"[{_SIGN}]?\s*{_DECIMAL}"
_FRACTION_ARGUMENT = rf"(?:\{{\s*({_SIGNED})\s*\}}|([0-9]))"
_LATEX_FRACTION = rf"\\[dtc]?frac\s*{_FRACTION_ARGUMENT}\s*{_FRACTION_ARGUMENT}"
_VULGAR = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_EXPONENT = r"(?:\{\s*[+\-−]?[0-9]{1,9}\s*\}|\([+\-−]?[0-9]{1,9}\)|[+\-−]?[0-9]{1,9})(?!\.?[0-9])"
_SUPER = "[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+"

_NUMBER = re.compile(
    rf"""
    (?P<other>
        \bFraction\(\s*(?P<top>[+\-]?[0-9]+)\s*,\s*(?P<bottom>[1-9][0-9]*)\s*\)
      | \b(?:USD|EUR|GBP|INR|US|Rs)\.?(?=\s*\\?[$€£¥₹]?\s*[0-9])
      | [A-Za-z_][A-Za-z0-9_]*
      | [_^]\s*(?:\{{[^{{}}]*\}}|[+\-−]?[0-9A-Za-z.]+)
    )
  | (?P<broken>
        0[xX][0-9a-fA-F]+\b
      | [0-9]+(?::[0-9]+)+
      | [0-9]+(?:\.[0-9]+){{2,}}
      | [0-9][0-9.]{{0,40}}(?:/[0-9.]+){{2,}}
      | [{_SIGN}]?(?:\\?\$)?[0-9][0-9.,]{{0,40}}%?(?:[-–—−](?:\\?\$)?[0-9](?:[0-9.,/]{{0,40}}[0-9])?)+%?
      | [0-9]+(?:st|nd|rd|th)\b
      | [0-9]+(?:\.[0-9]+)?j\b
    )
  | (?P<number>
        (?P<sign>(?<![0-9A-Za-z)\]}}%])[{_SIGN}])?
        (?:(?:\\?\$|[€£¥₹])\s*(?P<inner>[{_SIGN}](?=[0-9.]))?)?
        (?:
            (?P<whole>{_INT})(?:[ \t]*(?P<mixed_latex>{_LATEX_FRACTION})|[ \t]?(?P<mixed_vulgar>[{_VULGAR}])
                |[ \t]+(?P<mixed_top>[0-9]+)\s?[/⁄∕]\s?(?P<mixed_bottom>[0-9]+)(?![0-9/]|[.,][0-9]))
          | (?P<latex>{_LATEX_FRACTION})
          | (?P<vulgar>[{_VULGAR}])
          | (?P<base>{_DECIMAL})\s*(?:(?:\^|\*\*)\s*(?P<power>{_EXPONENT})|(?P<super>{_SUPER}))
          | (?P<decimal>{_DECIMAL})
            (?:[eE](?P<exponent>[+\-−]?[0-9]{{1,9}})(?![0-9A-Za-z])
              |\s*(?:×|\\times|\\cdot|·|\*|[xX])\s*10\s*
                (?:(?:\^|\*\*)\s*(?P<scientific>{_EXPONENT})|(?P<super_scientific>{_SUPER}))
              |\s*[/⁄∕]\s*(?P<bottom2>{_DECIMAL})(?![0-9/]|[.,][0-9]))?
        )
        (?P<percent>\s*(?:\\?%|％|\\(?:text|mathrm)\{{\s*per\s?cent|\bper\s?cent\b|\bpct\b|percentage\spoint))?
        (?:[\s-](?P<scale>hundred|thousand|million|billion|trillion)\b)?
    )
    """,
    re.VERBOSE,
)
_LATEX_PARTS = re.compile(_LATEX_FRACTION)
_BEFORE_SPACED_MINUS = re.compile(r"(?:[=(\[{:,$]|\b(?:is|equals|was)|\A)\s*[-−–]\s+\Z")


@dataclass(frozen=True)
class Number:
    """One number of a text.

    Attributes:
        value: The number as written; `25%` has the value 25, see `percent`.
        decimals: Digits written after the point, 0 for integers and fractions.
        percent: A percent sign or word follows.
        text: The characters read, with sign, currency and percent sign.
        span: Their place in the text.
    """

    value: Fraction
    decimals: int = 0
    percent: bool = False
    text: str = ""
    span: tuple[int, int] = (0, 0)

    @property
    def amount(self) -> Fraction:
        """The value with a percent sign carried out: 1/4 for `25%`."""
        return self.value / 100 if self.percent else self.value


def find_numbers(text: str) -> list[Number]:
    """All numbers of the text, in order."""
    return [number for number in _scan(text) if number is not None]


def parse_number(text: str) -> Number | None:
    """The one number that the text holds, whatever currency, unit, label or mark-up stands around it.

    None where there is none, where there are several, or where a numeral is not one number (`5-7`, `10:30`).
    """
    found = []
    for number in _scan(text):
        found.append(number)
        if number is None or len(found) > 1:
            return None
    return found[0] if found else None


def canonical(number: Number) -> str:
    """The number as rows carry it: `18`, `-3.5`, `2/3`, `25%`."""
    return plain(number.value) + ("%" if number.percent else "")


def plain(value: Fraction) -> str:
    """Exact text of a value: decimal digits where they end, `p/q` otherwise."""
    rest = value.denominator
    twos = fives = 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return ("-" if value < 0 else "") + text


def _scan(text: str) -> Iterator[Number | None]:
    """Numbers in order; None stands for a numeral that is not one number."""
    for match in _NUMBER.finditer(text):
        if match["other"] is not None:
            if match["top"] is not None:
                yield _number(_ratio(match["top"], match["bottom"]), 0, False, text, match.span())
            continue
        if match["broken"] is not None:
            yield None
            continue
        try:
            value, decimals = _value(match)
        except (ZeroDivisionError, _TooLongError):
            yield None
            continue
        start, end = match.span()
        sign = match["inner"] or match["sign"]
        if sign is None and start and text[start - 1] in " \t":
            spaced = _BEFORE_SPACED_MINUS.search(text, max(0, start - 20), start)
            # A line that starts with "- 5" is an item of a list, unless it is the whole text.
            if spaced and (spaced.start() > 0 or "\n" not in text.strip()):
                sign, start = "-", start - len(text[:start]) + len(text[:start].rstrip().rstrip("-−–"))
        if sign in _MINUS:
            value = -value
        yield _number(value, decimals, match["percent"] is not None, text, (start, end))


def _number(value: Fraction, decimals: int, percent: bool, text: str, span: tuple[int, int]) -> Number:
    return Number(value, decimals, percent, text[slice(*span)].strip(), span)


class _TooLongError(ValueError):
    """A numeral or an exponent too long to be an answer."""


def _value(match: re.Match[str]) -> tuple[Fraction, int]:
    """Value without the sign, and the count of decimals written."""
    decimals = 0
    if match["whole"] is not None:
        if match["mixed_latex"] is not None:
            part = _latex(match["mixed_latex"])
        elif match["mixed_vulgar"] is not None:
            part = _vulgar(match["mixed_vulgar"])
        else:
            part = _ratio(match["mixed_top"], match["mixed_bottom"])
        # "3 4/2" is no mixed number, nor two answers.
        if not 0 <= part < 1:
            raise _TooLongError
        value = _decimal(match["whole"])[0] + part
    elif match["latex"] is not None:
        value = _latex(match["latex"])
    elif match["vulgar"] is not None:
        value = _vulgar(match["vulgar"])
    elif match["base"] is not None:
        base, _ = _decimal(match["base"])
        exponent = _exponent(match["power"] or match["super"])
        if abs(exponent) * len(match["base"]) > _MAX_DIGITS:
            raise _TooLongError
        value = base**exponent
    else:
        value, decimals = _decimal(match["decimal"])
        exponent_text = match["exponent"] or match["scientific"] or match["super_scientific"]
        if exponent_text is not None:
            exponent = _exponent(exponent_text)
            value, decimals = value * Fraction(10) ** exponent, max(0, decimals - exponent)
        elif match["bottom2"] is not None:
            value, decimals = value / _decimal(match["bottom2"])[0], 0
    if match["scale"] is not None:
        value *= 10 ** _SCALES[match["scale"]]
    return value, decimals


def _decimal(text: str) -> tuple[Fraction, int]:
    """Value of a signed or unsigned decimal, and its count of decimals."""
    text = text.strip()
    if len(text) > _MAX_DIGITS:
        raise _TooLongError
    negative = text[:1] in _MINUS
    digits = "".join(char for char in text if char in "0123456789.")
    whole, _, decimals = digits.partition(".")
    value = Fraction(int((whole + decimals) or "0"), 10 ** len(decimals))
    return (-value if negative else value), len(decimals)


def _ratio(top: str, bottom: str) -> Fraction:
    return _decimal(top)[0] / _decimal(bottom)[0]


def _latex(text: str) -> Fraction:
    match = _LATEX_PARTS.match(text)
    assert match is not None  # the same pattern found it
    top, top_digit, bottom, bottom_digit = match.groups()
    return _ratio(top or top_digit, bottom or bottom_digit)


def _vulgar(char: str) -> Fraction:
    return Fraction(unicodedata.numeric(char)).limit_denominator(100)


def _exponent(text: str) -> int:
    exponent = int(text.translate(_SUPERSCRIPTS).replace("−", "-").strip("{}() \t"))
    if abs(exponent) > _MAX_DIGITS:
        raise _TooLongError
    return exponent
