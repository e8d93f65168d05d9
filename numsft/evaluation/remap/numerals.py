"""The numerals of a question, with their spans, and the ones that make a question unfit for remapping.

| text | read as |
|---|---|
| `16`, `80,000`, `$1.50`, `20-minute`, `30mph` | a numeral |
| `40%`, `40 percent` | a numeral that may mean 40 or 0.4 |
| `0`, `1`, `100`, `2/3` | fixed: stays as it is and explains constants |
| `3:30`, `5-10`, `5 to 10`, `2nd`, `90's`, `#4`, `May 5`, `7 pm`, `grade 3`, `1 1/2`, `½` | refused |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from numsft.evaluation.remap.annotations import NUMBER, parse_number
from numsft.evaluation.remap.rejection import Rejected

_NUMERAL = re.compile(NUMBER.replace(r"\d+(?:\.\d*)?", r"\d+(?:\.\d+)?"))
_FRACTION = re.compile(r"(?<![\d.,/$])(?<!\d )(\d+)/(\d+)(?![\d/]|\.\d)")
_UNITS = r"(?:mph|MPH|kgs?|kg|g|cm|mm|km|ft|ml|oz|lbs?|GB|MB|kb)\b"
_MONTHS = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?"
)
_LABELS = (
    r"(?:grade|chapter|page|room|level|step|stage|round|size|number|route|figure|lesson|unit|phase|class"
    r"|version|no\.|week|day|month|year|quarter|game|part|section|type|test|exam|project|act|gate|bus|floor"
    r"|team|group|column|row|line|track|zone|highway|interstate|question|problem|item|season|episode)s?"
)
_ODD_BEFORE = re.compile(
    rf"(?:[A-Za-z0-9#'’/:_^*+=~-]|\d[.,]|\d to |\d - |\d – |–|\b{_MONTHS} |\b{_LABELS} (?:#|no\. )?"
    r"|\d:|\bbetween \S{0,9} and |\b(?:a|p)\.?m\.? - )$",
    re.IGNORECASE,
)
_ODD_AFTER = re.compile(
    rf"(?:(?!{_UNITS})[A-Za-z_]|['’\"”]\d|'s|’s|:\d|/\d|\s?[-–]\s?\d| to (?:\$)?\d|,\d|\.\d|\^|\*"
    rf"|(?:st|nd|rd|th)\b|\s?(?:[ap]\.?m\b|o'clock|o’clock)|(?:-year)?-olds? \d| (?:of )?{_MONTHS}(?:\W|$)"
    r"| \d|\s?(?:million|billion|thousand|hundred|k\b)|\s?x\s?\d|\s?by\s\d)",
    re.IGNORECASE,
)
_YEAR_BEFORE = re.compile(r"\b(?:in|since|of|by|from|until|before|after|year|during)\s$", re.IGNORECASE)


@dataclass(frozen=True)
class Numeral:
    """One numeral of a question.

    Attributes:
        start: Its first character.
        end: One past its last.
        text: As written, without $ and %.
        value: Exact; 40 for `40%`.
        percent: Whether % or "percent" follows.
        fixed: Whether it stays as it is.
    """

    start: int
    end: int
    text: str
    value: Fraction
    percent: bool
    fixed: bool

    @property
    def readings(self) -> tuple[Fraction, ...]:
        """The values that a solution may use for it."""
        return (self.value, self.value / 100) if self.percent else (self.value,)

    @property
    def decimals(self) -> int:
        """Digits after the point."""
        return len(self.text.partition(".")[2])


def find_numerals(question: str) -> tuple[Numeral, ...]:
    """Returns the numerals of `question` in reading order.

    Raises:
        Rejected: With `odd numeral` if some digits are none of the forms that may be remapped or left alone.
    """
    if odd := next((c for c in question if c.isnumeric() and not c.isascii()), None):
        raise Rejected("odd numeral", odd)
    fractions = {m.start(i): m for m in _FRACTION.finditer(question) for i in (1, 2)}
    found = []
    for match in _NUMERAL.finditer(question):
        start, end, text = match.start(), match.end(), match[0]
        before, after = question[:start], question[end:]
        if start in fractions:
            whole = fractions[start]
            rest = question[whole.end() :]
            if re.match(r"[A-Za-z]|['’]", rest) or re.search(
                r"[A-Za-z\d-]$|\band $", question[: whole.start()]
            ):
                raise Rejected("odd numeral", whole[0])
            found.append(Numeral(start, end, text, parse_number(text), False, True))
            continue
        value = parse_number(text)
        year = len(text) == 4 and 1700 <= value <= 2100 and _YEAR_BEFORE.search(before)
        leading_zero = re.match(r"0\d", text)
        if year or leading_zero or _ODD_BEFORE.search(before[-25:]) or _ODD_AFTER.match(after):
            raise Rejected("odd numeral", question[max(0, start - 6) : end + 6])
        percent = bool(re.match(r"\s?(?:%|percent\b|per cent\b)", after))
        found.append(Numeral(start, end, text, value, percent, value in (0, 1, 100)))
    covered = {i for numeral in found for i in range(numeral.start, numeral.end)}
    if any(c.isdigit() and i not in covered for i, c in enumerate(question)):
        raise Rejected("odd numeral", "digits outside every numeral")
    return tuple(found)


def fixed_fractions(question: str) -> tuple[tuple[Fraction, Fraction], ...]:
    """Returns numerator and denominator of each fraction such as `2/3`; they are never remapped."""
    return tuple((Fraction(m[1]), Fraction(m[2])) for m in _FRACTION.finditer(question))


def write_like(numeral: Numeral, value: Fraction) -> str:
    """Writes `value` with the decimals of `numeral`, and its thousands commas.

    Where the old numeral was too short for a comma, numbers from 10,000 on get commas.

    Raises:
        ValueError: If the value needs more decimals.
    """
    scaled = value * 10**numeral.decimals
    if scaled.denominator != 1 or value < 0:
        raise ValueError(f"{value} cannot be written with {numeral.decimals} decimals")
    digits = str(int(scaled)).rjust(numeral.decimals + 1, "0")
    whole, decimals = digits[: len(digits) - numeral.decimals], digits[len(digits) - numeral.decimals :]
    if "," in numeral.text or (numeral.value < 1000 and value >= 10000):
        whole = f"{int(whole):,}"
    if numeral.text.startswith(".") and whole == "0":
        whole = ""
    return whole + ("." + decimals if decimals else "")


def rewrite(question: str, numerals: tuple[Numeral, ...], values: dict[int, Fraction]) -> str:
    """Returns `question` with numeral `i` replaced by `values[i]`, by span from the right."""
    for i in sorted(values, reverse=True):
        numeral = numerals[i]
        question = question[: numeral.start] + write_like(numeral, values[i]) + question[numeral.end :]
    return question
