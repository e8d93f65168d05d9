"""One text under the published rules: whether it is run, and what its answer is worth."""

from __future__ import annotations

from numsft.evaluation import paper
from numsft.evaluation.benchmarks import Question, kind_of
from numsft.evaluation.paper_math import strip_string
from numsft.evaluation.verdict import Output, Verdict


def program(question: Question, text: str, name: str) -> str | None:
    """The program to run, None for prose; any text that prints is run, in either pass."""
    # The one space that the training template puts before a completion is the template's, not the model's.
    return paper.program_form(text.removeprefix(" ")) if paper.is_program(text) else None


def verdict(question: Question, text: str, output: Output | None, name: str) -> Verdict:
    """The published answer and judgement of one text; `output` is that of its program, None for prose."""
    read = text if output is None else paper.program_answer(output.stdout, output.error)
    source = "program" if output is not None else "text"
    if kind_of(question.benchmark) == "choice":
        letter, answered = paper.extract_choice(read)
        return Verdict(
            letter,
            source if answered else "default_option",
            "letter" if letter == question.gold else "",
            answered,
        )
    answer = paper.extract(question.benchmark, read)
    if kind_of(question.benchmark) == "math":
        matched = paper.correct(answer, strip_string(question.gold), question.gold_number)
    else:
        matched = paper.correct(answer, question.gold)
    return Verdict(answer, source if answer else "", matched, answer != "")
