"""A second derivation: the same new answer from the solution's own words, not from its annotations.

Most lines write the calculation out before the annotation, `She makes 9 * 2 = $<<9*2=18>>18`. Those words are
read by themselves and computed for the new values; where they give another number, the item is refused.
"""

from __future__ import annotations

import re
from fractions import Fraction

from numsft.evaluation.remap.annotations import Expression, parse_expression
from numsft.evaluation.remap.binding import Program
from numsft.evaluation.remap.rejection import Rejected

_CALCULATION = re.compile(r"([\d.,$%()\s*/+\-A-Za-zx×÷]*?)=\s*\$?\s*$")


def prose_expression(prose: str, value: Fraction) -> Expression | None:
    """Returns the calculation that ends `prose`, or None where it is not a plain one giving `value`."""
    match = _CALCULATION.search(prose.replace("–", "-").replace("−", "-"))
    if not match:
        return None
    text = re.sub(r"(?<=[\d\s)])[x×](?=[\s\d($])", "*", match[1]).replace("÷", "/").replace("$", "")
    tail = re.search(r"[\d.,%()\s*/+\-]*$", text)
    without_words = re.sub(r"[A-Za-z]+", " ", re.split(r"[,;:.]\s", text)[-1])
    for candidate in (tail[0] if tail else "", without_words):
        try:
            expression = parse_expression(candidate.strip(" +*/,."))
            if expression.operations() and expression.evaluate() == value:
                return expression
        except (Rejected, ZeroDivisionError):
            continue
    return None


def second_derivation(program: Program, values: dict[int, Fraction]) -> tuple[int, list[str]]:
    """Computes the steps from the words before each annotation, for numerals `values`.

    Returns:
        How many steps could be read, and a sentence for each that disagrees.
    """
    results = program.run(values)
    new: dict[Fraction, Fraction] = {}
    for i in program.free:
        numeral = program.numerals[i]
        for reading in numeral.readings:
            new[reading] = values.get(i, numeral.value) * reading / numeral.value
    read, disagreements = 0, []
    for step, result in zip(program.steps, results, strict=True):
        if expression := prose_expression(step.prose, step.value):
            read += 1
            computed = expression.evaluate([new.get(literal, literal) for literal in expression.literals])
            if computed != result:
                disagreements.append(f"the words give {computed}, the annotation {result}")
        new.setdefault(step.value, result)
    return read, disagreements
