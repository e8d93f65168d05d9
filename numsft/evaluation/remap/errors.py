"""Tells logical from arithmetic errors in a model's answer, by checking the equations that it wrote.

A wrong answer is *arithmetic* where the equations, each computed exactly and the corrected values carried
forward, end in the gold answer: the plan was right and a calculation was not. It is *logical* where they do
not: correct calculations led to something else. GSM-Ranges (arXiv 2502.08680) makes the same distinction by
letting a language model translate the answer into a program; here nothing is judged but the text itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from numsft.evaluation.remap.annotations import NUMBER, Expression, parse_expression, parse_number
from numsft.evaluation.remap.rejection import Rejected

KINDS = ("correct", "arithmetic", "logical", "unchecked")
_SUM = re.compile(
    rf"((?:[-(]\s*)*{NUMBER}\s?%?(?:[\s()]*[-+*/][\s()-]*{NUMBER}\s?%?)+[\s)]*)=\s*(-?\s?{NUMBER})(\s?%|\s?/\s?[1-9]\d*)?"
)
_ANNOTATION = re.compile(r"<<[^<>]*>>")
_LAST = re.compile(rf"-?{NUMBER}")


@dataclass(frozen=True)
class Equation:
    """One equation of a text.

    Attributes:
        text: As it stands there, tidied (× as *, without $ and words).
        stated: The value after the equals sign.
        exact: The exact value of the left side as written.
        corrected: The same, with the corrected values of earlier equations in place of wrong ones.
        holds: Whether `stated` is `exact`, or that rounded to the decimals written.
    """

    text: str
    stated: Fraction
    exact: Fraction
    corrected: Fraction
    holds: bool


@dataclass(frozen=True)
class ErrorReport:
    """What kind of error an answer has.

    Attributes:
        kind: One of `KINDS`; `unchecked` is a wrong answer without a single equation to check.
        equations: Those found, in order.
        corrected_answer: Where the equations lead when each is computed exactly; None without one.
    """

    kind: str
    equations: tuple[Equation, ...]
    corrected_answer: Fraction | None


def classify_errors(
    text: str, gold: str | int | Fraction, predicted: str | int | Fraction | None = None
) -> ErrorReport:
    """Classifies one answer.

    Args:
        text: The model's whole answer; calculator annotations in it are ignored.
        gold: The right answer.
        predicted: The answer extracted from the text; None takes its last number.

    Raises:
        ValueError: If `gold` or `predicted` is no number.
    """
    target = _exact(gold)
    numbers = _LAST.findall(text)
    answer = _exact(predicted) if predicted is not None else (_exact(numbers[-1]) if numbers else None)
    equations = check_equations(text)
    corrected = _corrected_answer(equations, answer)
    if answer == target:
        kind = "correct"
    elif not equations:
        kind = "unchecked"
    else:
        kind = "arithmetic" if corrected == target and corrected != answer else "logical"
    return ErrorReport(kind, equations, corrected)


def check_equations(text: str) -> tuple[Equation, ...]:
    """Returns the equations `a op b = c` of `text`, each against exact arithmetic."""
    right: dict[
        Fraction, Fraction
    ] = {}  # a stated value that was wrong or rounded, and what it should have been
    found = []
    tidy = _tidy(text)
    for match in _SUM.finditer(tidy):
        if re.search(r"[\w.,+*/^(-]\s*$", tidy[: match.start()]) and not re.search(
            r"(?:[A-Za-z]{2,}[.,]?|[.,]) +$|\n\s*$", tidy[: match.start()]
        ):
            continue  # the end of a longer expression
        expression = _parse(match[1])
        if expression is None:
            continue
        stated = parse_number(match[2].lstrip("- ")) * (-1 if match[2].startswith("-") else 1)
        after = (match[3] or "").strip()  # a percent sign, or the denominator of a fraction
        percent = after == "%"
        stated /= 100 if percent else int(after.lstrip("/ ") or 1)
        decimals = 0 if after.startswith("/") else len(match[2].partition(".")[2]) + 2 * percent
        try:
            exact = expression.evaluate()
            corrected = expression.evaluate([right.get(value, value) for value in expression.literals])
        except ZeroDivisionError:
            continue
        holds = _rounds_to(exact, stated, decimals) or (percent and exact == stated * 100)
        if corrected != stated:
            right[stated] = corrected
        else:
            right.pop(stated, None)
        found.append(Equation(match[0].strip(), stated, exact, corrected, holds))
    return tuple(found)


def _corrected_answer(equations: Sequence[Equation], answer: Fraction | None) -> Fraction | None:
    """Where the equations lead: that whose stated value is the answer, else the last."""
    if not equations:
        return None
    matching = [equation for equation in equations if equation.stated == answer]
    return (matching or equations)[-1].corrected


def _tidy(text: str) -> str:
    text = _ANNOTATION.sub("", text).replace("−", "-").replace("–", "-").replace("÷", "/")
    text = re.sub(r"[$€£]|\\[()\[\]]|\\\$", "", text).replace("\\times", "*").replace("\\div", "/")
    text = re.sub(r"(?<=[\d)%\s])[x×·](?=[\s\d(])", "*", text)
    # words between a number and an operator or equals sign are units: `20 sheep + 160 sheep = 180 sheep`
    return re.sub(rf"({NUMBER})(\s?%)?(?:[ -][A-Za-z']+){{1,3}}\s*(?=[-+*/=]\s)", r"\1\2 ", text)


def _parse(text: str) -> Expression | None:
    balance = text.count(")") - text.count("(")
    text = text.strip()
    if balance > 0:
        text = text.rstrip(") ") + ")" * max(0, text.rstrip(") ").count("(") - text.rstrip(") ").count(")"))
    elif balance < 0:
        text = text.lstrip("( ")
    try:
        return parse_expression(text)
    except Rejected:
        return None


def _rounds_to(exact: Fraction, stated: Fraction, decimals: int) -> bool:
    """Whether `stated` is `exact`, or that rounded or cut to one or more decimals."""
    return exact == stated or (decimals > 0 and abs(exact - stated) < Fraction(1, 10**decimals))


def _exact(value: str | int | Fraction) -> Fraction:
    text = str(value).replace(",", "").replace("$", "").strip().rstrip(".")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{value!r} is no number; give the answer as digits, such as '18'.") from error
