"""Checks a program and a remapped question without trusting how they were made."""

from __future__ import annotations

from fractions import Fraction

from numsft.evaluation.remap.annotations import Expression, Step
from numsft.evaluation.remap.binding import Program, bind_steps
from numsft.evaluation.remap.numerals import Numeral, find_numerals
from numsft.evaluation.remap.rejection import Rejected


def program_problems(program: Program) -> list[str]:
    """Returns what is wrong with a program's bindings, one sentence each; empty where it is sound.

    Identity values must give every original step; each free numeral is used once, each step by a later one,
    and nothing that is called a constant could be a numeral or an earlier step.
    """
    problems = []
    free = {i: program.numerals[i].readings for i in program.free}
    uses = dict.fromkeys(free, 0)
    used_steps = set()
    for number, (step, sources) in enumerate(zip(program.steps, program.sources, strict=True)):
        earlier = [other.value for other in program.steps[:number]]
        for literal, source in zip(step.expression.literals, sources, strict=True):
            if source.value != literal:
                problems.append(f"step {number}: a literal {literal} is bound as {source.value}")
            if source.kind == "numeral":
                if source.value not in free.get(source.index, ()):
                    problems.append(f"step {number}: {literal} is not numeral {source.index}")
                uses[source.index] = uses.get(source.index, 0) + 1
            elif source.kind == "step":
                if source.index >= number or earlier.count(literal) != 1 or earlier[source.index] != literal:
                    problems.append(f"step {number}: {literal} is not the value of step {source.index} alone")
                used_steps.add(source.index)
            if source.kind != "numeral" and any(literal in readings for readings in free.values()):
                problems.append(f"step {number}: {literal} could be a numeral, not a {source.kind}")
            if source.kind != "step" and literal in earlier:
                problems.append(f"step {number}: {literal} could be an earlier step")
    problems += [f"numeral {i} is used {count} times" for i, count in uses.items() if count != 1]
    problems += [f"step {n} is unused" for n in range(len(program.steps) - 1) if n not in used_steps]
    try:
        if (
            program.run({}) != [step.value for step in program.steps]
            or program.gold != program.steps[-1].value
        ):
            problems.append("the original values do not give the original answer")
    except (ZeroDivisionError, IndexError):
        problems.append("the program does not run on the original values")
    return problems


def remap_problems(
    program: Program, values: dict[int, Fraction], question: str, answer: Fraction
) -> list[str]:
    """Returns what is wrong with the remapped `question` and `answer`; empty where nothing is.

    The new text is parsed again: its numerals are the mapped ones, the text around them is unchanged, and
    binding the new solution from scratch gives the same program, which computes the answer.
    """
    try:
        numerals = find_numerals(question)
    except Rejected as error:
        return [f"the new question cannot be read: {error}"]
    problems = []
    expected = [values.get(i, numeral.value) for i, numeral in enumerate(program.numerals)]
    if sorted(numeral.value for numeral in numerals) != sorted(expected):
        problems.append("the new numerals are not the mapped ones")
    if _without(question, numerals) != _without(program.question, program.numerals):
        problems.append("more than numerals changed")
    if problems:
        return problems
    steps = tuple(
        Step(Expression(step.expression.tree, tuple(row)), step.expression.evaluate(row), step.prose)
        for step, row in zip(program.steps, program.literals(values), strict=True)
    )
    try:
        again = bind_steps(question, steps, answer)
    except Rejected as error:
        return [f"the new item is ambiguous: {error}"]
    if _shape(again) != _shape(program):
        problems.append("the new item binds otherwise")
    if again.run({})[-1] != answer:
        problems.append("the program gives another answer")
    return problems + program_problems(again)


def _without(text: str, numerals: tuple[Numeral, ...]) -> list[str]:
    ends = [0, *(numeral.end for numeral in numerals)]
    starts = [*(numeral.start for numeral in numerals), len(text)]
    return [text[end:start] for end, start in zip(ends, starts, strict=True)]


def _shape(program: Program) -> list[list[tuple[str, int | Fraction]]]:
    return [
        [(source.kind, source.value if source.kind == "constant" else source.index) for source in row]
        for row in program.sources
    ]
