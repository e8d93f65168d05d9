"""The metrics of the number tasks, on an answer as written: exact match, digit match, dlength.

An answer has up to four parts: integer, decimals, exponent (with its sign) and denominator. An empty or
unreadable prediction has none of them, so every digit of it is wrong.
"""

from __future__ import annotations

import re

_ANSWER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+|/\d+)?")
_PARTS = re.compile(
    r"(?P<integer>-?\d+)(?:\.(?P<decimals>\d+))?(?:[eE]\+?(?P<exponent>-?\d+)|/(?P<denominator>\d+))?"
)


def extract_answer(text: str) -> str:
    """The first number a model wrote, in any of the four notations with its signs, or an empty text."""
    found = _ANSWER.search(text)
    return found.group() if found else ""


def _parts(text: str) -> dict[str, str]:
    found = _PARTS.fullmatch(text.strip())
    return {name: part for name, part in found.groupdict().items() if part} if found else {}


def exact_match(prediction: str, gold: str) -> bool:
    """Every part is there and equal, compared as text (so `1.50` is not `1.5`)."""
    return bool(_parts(gold)) and _parts(prediction) == _parts(gold)


def digit_match(prediction: str, gold: str) -> float:
    """Share of the gold's digits that the prediction has at the same place; its extra digits are free.

    Integers, exponents and the parts of a fraction are aligned on the right, decimals on the left. Signs are
    not digits: only `exact_match` sees them.
    """
    predicted, equal, total = _parts(prediction), 0, 0
    for name, part in _parts(gold).items():
        step = 1 if name == "decimals" else -1
        wanted, found = part.lstrip("-")[::step], predicted.get(name, "").lstrip("-")[::step]
        equal += sum(a == b for a, b in zip(wanted, found, strict=False))
        total += len(wanted)
    return equal / total if total else 0.0


def dlength(prediction: str, gold: str) -> int:
    """Difference in the number of digits, all parts together."""
    counts = [sum(len(part.lstrip("-")) for part in _parts(text).values()) for text in (prediction, gold)]
    return abs(counts[0] - counts[1])
