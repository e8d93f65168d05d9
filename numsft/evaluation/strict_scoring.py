"""One text under the strict rules: whether it is run, and what its answer is worth."""

from __future__ import annotations

from numsft.evaluation import math_text, strict
from numsft.evaluation.benchmarks import Question, kind_of
from numsft.evaluation.choices import option_count, strict_choice
from numsft.evaluation.numbers import canonical, parse_number
from numsft.evaluation.programs import find_program
from numsft.evaluation.verdict import Output, Verdict


def program(question: Question, text: str, name: str) -> str | None:
    """The program to run, None for prose. In the backup pass a stated answer comes before a program."""
    kind = kind_of(question.benchmark)
    if kind == "choice":
        return None
    if name == "cot":
        stated = (
            math_text.math_answer(text, guess=False)[0]
            if kind == "math"
            else strict.from_text(text, guess=False).number
        )
        if stated:
            return None
    return find_program(text)


def verdict(question: Question, text: str, output: Output | None, name: str) -> Verdict:
    """The strict answer and judgement of one text; `output` is that of its program, None for prose."""
    kind = kind_of(question.benchmark)
    if kind == "choice":
        options = len(question.options) or option_count(question.question) or 5
        choice = strict_choice(text, options)
        return Verdict(
            choice.letter,
            choice.source,
            "letter" if choice.letter == question.gold else "",
            choice.letter != "",
        )
    return _math(question, text, output) if kind == "math" else _number(question, text, output)


def _number(question: Question, text: str, output: Output | None) -> Verdict:
    system = question.benchmark == "simuleq"
    found = strict.from_text(text, system) if output is None else strict.from_output(output.stdout, system)
    gold = parse_number(question.gold)
    matched, correct_any = "", False
    if found.number is not None and gold is not None:
        matched = strict.match_number(found.number, gold, question.question)
        correct_any = bool(matched) or strict.match_any(found, gold, question.solutions, question.question)
    return Verdict(
        canonical(found.number) if found.number else "",
        found.source,
        matched,
        found.number is not None,
        correct_any if system else None,
    )


def _math(question: Question, text: str, output: Output | None) -> Verdict:
    if output is None:
        answer, source = math_text.math_answer(text)
    else:
        answer, source = math_text.printed_answer(output.stdout), "program"
    matched = math_text.equal(answer, question.gold, question.question) if answer else ""
    if not matched and source == "program" and answer[:1] == "[" and question.gold[:1] not in "[(":
        # A Python list is how a program prints several values.
        matched = math_text.equal(answer[1:-1], question.gold, question.question)
    return Verdict(math_text.canonical_math(answer), source if answer else "", matched, answer != "")
