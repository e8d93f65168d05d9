r"""The strict rule book: numbers are exact, units count, nothing is guessed, no answer is wrong and counted.

An answer comes, in this order, from the output of the program, the last `\boxed{}`, the last "the answer is",
or the last number of a prose text. Code whose output is missing gives no answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from numsft.evaluation.numbers import Number, find_numbers, parse_number
from numsft.evaluation.programs import looks_like_code, own_answer

_TRIGGER = re.compile(
    r"(?:\banswers?\b(?:\s+(?:option|choice))?(?:\s+(?:to|for|of)\s[^.\n]{0,80}?)?[*_\s]*"
    r"(?:\bis\b|\bare\b|\bwas\b|\bequals\b|\b(?:will|would|should|must)\s+be\b|(?P<label>[:=]))[*_\s]*:?|####)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"\.(?=\s|$)|\n|(?<=[!?])\s")
# Triggers further back than this are not looked at.
_MOST_TRIGGERS = 20
_ASKS_PERCENT = re.compile(
    r"percent|per cent|%|\bchances?\b|\bodds\b|\blikel|\bprobab|\brate\b|\bdiscount\b|\bcharge\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"[^.!?\n]*\?")
_CLAUSE_END = re.compile(r",\s|;|\band\b|\bor\b|\bso\b|\\text\{\s*and")
_TOLERANCE = Fraction(1, 10**6)
# A system of equations has few unknowns; a longer list of numbers is no answer but a search.
MOST_UNKNOWNS = 4


@dataclass(frozen=True)
class Extraction:
    """What a text answers.

    Attributes:
        number: The answer, None where there is none.
        source: Where it was found: program, boxed, trigger, last_number, or "".
        solutions: All values that the place where it was found names, in order (`x = 5, y = 10`).
    """

    number: Number | None = None
    source: str = ""
    solutions: tuple[Number, ...] = ()


def from_text(text: str, first: bool = False, guess: bool = True) -> Extraction:
    """The number that a text answers.

    Args:
        text: The completion.
        first: Take the first of several solutions, as a system of equations is scored.
        guess: Without a box or a trigger, take the number that ends the text if it is prose: behind the last
            equals sign of the last sentence, or its last number.
    """
    text = own_answer(text)
    boxed = boxes(text)
    if first and len(boxed) <= MOST_UNKNOWNS:
        # One box for each unknown.
        named = tuple(number for content in boxed for number in _named(content))
        if named:
            return Extraction(named[0], "boxed", named)
    for content in reversed(boxed):
        found = _pick(content, first)
        if found is not None:
            return Extraction(found, "boxed", _named(content))
    for segment in reversed(triggered(text)):
        found = _pick(segment, True)
        if found is not None:
            return Extraction(found, "trigger", _named(segment))
    if guess and not looks_like_code(text):
        sentences = [part for part in _SENTENCE_END.split(text) if find_numbers(part)]
        if sentences:
            named = _named(sentences[-1]) if first else ()
            return Extraction(named[0] if named else _pick(sentences[-1], False), "last_number", named)
    return Extraction()


def from_output(stdout: str, first: bool = False) -> Extraction:
    """The number that a program printed: of the last line that holds one, or of the first for a system."""
    lines = [line for line in stdout.split("\n") if find_numbers(line)]
    if not lines:
        return Extraction()
    if first:
        named = tuple(number for line in lines[: MOST_UNKNOWNS + 1] for number in _named(line))
        return Extraction(_pick(lines[0], True), "program", named)
    said = [segment for segment in triggered(lines[-1]) if find_numbers(segment)]
    found = _pick(said[-1], True) if said else _pick(lines[-1], False)
    return Extraction(found, "program")


def boxes(text: str) -> list[str]:
    r"""Contents of all `\boxed{}` and `\fbox{}`, outermost only, in order; `\boxed 5` counts too."""
    found, at = [], 0
    pattern = re.compile(r"\\f?boxed\s*|\\fbox\s*")
    while (match := pattern.search(text, at)) is not None:
        start = at = match.end()
        if text[start : start + 1] != "{":
            found.append(re.split(r"[\s$]", text[start:], maxsplit=1)[0])
            continue
        depth = 0
        for end in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                found.append(text[start + 1 : end])
                at = end
                break
        else:
            break  # cut off in the middle: what is there may be half a number
    return found


def triggered(text: str, trigger: re.Pattern[str] = _TRIGGER) -> list[str]:
    """What stands behind each "the answer is", to the end of its sentence, in order."""
    found = []
    for match in list(trigger.finditer(text))[-_MOST_TRIGGERS:]:
        rest = text[match.end() :].lstrip(" \t*_")
        if not rest.split("\n", 1)[0].strip(" \t:*_$\\[("):
            # Nothing on this line: the answer stands on the next one, as displayed mathematics does.
            rest = rest.lstrip(" \t\n:*_$\\[(")
        end = _SENTENCE_END.search(rest)
        segment = rest[: end.start()] if end else rest
        # "Answer:" also opens whole solutions, whose first number is no answer.
        if match.groupdict().get("label") and _opens_solution(segment, rest[len(segment) :]):
            continue
        found.append(segment)
    return found


def _opens_solution(segment: str, rest: str) -> bool:
    """Whether "Answer:" opens a solution: several words before its number, or equations after."""
    numbers = find_numbers(segment)
    before = segment[: numbers[0].span[0]] if numbers else ""
    return "=" in rest or ("=" not in before and len(re.findall(r"[A-Za-z]+", before)) > 1)


def _pick(segment: str, first: bool) -> Number | None:
    """The answer in a short text: behind its equals sign, else its first or last number."""
    if "=" in segment:
        start = segment.index("=")
        clause_end = _CLAUSE_END.search(segment, start)
        clause = segment[: clause_end.start()] if clause_end and first else segment
        numbers = find_numbers(clause[clause.rindex("=") + 1 :])
        if numbers:
            return numbers[0]
    elif ":" in segment and not first:
        numbers = find_numbers(segment[segment.rindex(":") + 1 :])
        if numbers:
            return numbers[0] if len(numbers) == 1 else numbers[-1]
    numbers = find_numbers(segment)
    if not numbers:
        return None
    return numbers[0 if first else -1]


def _named(segment: str) -> tuple[Number, ...]:
    """The value of each clause of a short text; of all numbers in a clause of bare ones, as `15 9`."""
    named: list[Number] = []
    for clause in _CLAUSE_END.split(segment):
        numbers = find_numbers(clause)
        if len(numbers) > 1 and not re.search(r"[A-Za-z=]", clause):
            named += numbers
        elif numbers and (picked := _pick(clause, True)) is not None:
            named.append(picked)
    return tuple(named)


def asks_percent(question: str) -> bool:
    """Whether the question asks for a percentage, a probability or a rate, so that `25%` answers 25."""
    asked = list(_QUESTION.finditer(question))
    if not asked:
        sentences = re.split(r"(?<=[.!])\s+", question.strip())
        return bool(_ASKS_PERCENT.search(sentences[-1]))
    return bool(_ASKS_PERCENT.search(question[asked[-1].start() :]))


def match_number(number: Number, gold: Number, question: str = "") -> str:
    """How a number matches the gold, or "" where it does not.

    An integer gold g takes |p - g| <= 1e-6 max(1, |g|). A gold with k >= 2 decimals is a rounded one: it
    takes |p - g| <= 0.5 * 10^-k, and any gold a relative 1e-6. A percent sign is a unit: `25%` is 25 where
    the gold is in percent or the question asks for a percentage, and 1/4 otherwise.

    Returns:
        "exact", "tolerance" or "rounded", after "percent:" where a percent sign was converted or asked for.
    """
    if number.percent == gold.percent:
        return close(number.value, gold.value, gold.decimals)
    if number.percent:
        value = number.value if asks_percent(question) else number.amount
        how = close(value, gold.value, gold.decimals)
    else:
        # A bare number for a gold in percent: the question named the unit, or the number is the quotient.
        value = number.value if asks_percent(question) else number.value * 100
        how = close(value, gold.value, gold.decimals)
    return how and f"percent:{how}"


def close(value: Fraction, gold: Fraction, decimals: int) -> str:
    """Compares exact values by the rule of `match_number`; the gold is written with `decimals` decimals."""
    if value == gold:
        return "exact"
    difference = abs(value - gold)
    scale = max(Fraction(1), abs(gold)) if gold.denominator == 1 and not decimals else abs(gold)
    if difference <= _TOLERANCE * scale:
        return "tolerance"
    return "rounded" if decimals >= 2 and difference <= Fraction(1, 2 * 10**decimals) else ""


def match_any(found: Extraction, gold: Number, solutions: Sequence[str], question: str = "") -> bool:
    """Whether any solution that the text names is the gold, or its answer any of the known solutions."""
    if found.number is None:
        return False
    named = found.solutions if len(found.solutions) <= MOST_UNKNOWNS else ()
    if any(match_number(number, gold, question) for number in (*named, found.number)):
        return True
    known = [number for text in solutions if (number := parse_number(text)) is not None]
    return any(match_number(found.number, number, question) for number in known)
