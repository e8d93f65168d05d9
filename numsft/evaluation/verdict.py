"""What a rule book says of one text, and what it is told of a program's run."""

from __future__ import annotations

from typing import NamedTuple


class Output(NamedTuple):
    """A program's output: what it printed, and the class of its error, "timeout", or None."""

    stdout: str
    error: str | None


class Verdict(NamedTuple):
    """An answer and its judgement.

    Attributes:
        extracted: The answer, "" for none.
        source: Where it stood: program, boxed, trigger, last_number, marked, trailing, default_option or "".
        matched_by: The comparison that made it correct, "" where it is wrong.
        answered: Whether the text gave an answer.
        correct_any: For a system of equations under the strict rules: any of the solutions is right.
    """

    extracted: str
    source: str
    matched_by: str
    answered: bool
    correct_any: bool | None = None
