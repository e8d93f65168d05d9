r"""The benchmarks: how the rows of each file become questions (where the files come from: `benchmark_files`).

A row of each, shortened::

    gsm8k     {"question": "Janet's ducks lay 16 eggs ...", "answer": "... <<9*2=18>>18 ...\n#### 18"}
    math      {"problem": "...", "solution": "... $\\boxed{2}$ ..."}        math500 adds {"answer": "2"}
    svamp     {"Body": "Each pack of dvds costs 76 dollars. ...", "Question": "How much ...?", "Answer": 51.0}
    simuleq   {"question": "...", "answer": "15"}                           the first unknown's value only
    aqua      {"question": "...", "options": ["A)36", ...], "correct": "C"}
    sat_math  {"question": "... \nAnswer Choices: (A) 2 (B) 4 ...", "answer": "D"}
    mmlu_math {"question": "...", "choices": ["p = 4", ...], "answer": 2}
"""

from __future__ import annotations

import difflib
import json
import os
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.arithmetic import evaluate
from numsft.evaluation.benchmark_files import BENCHMARKS, TRAIN, Benchmark, Kind
from numsft.evaluation.download import benchmark_file

__all__ = ["BENCHMARKS", "TRAIN", "Benchmark", "Kind", "Question", "benchmark", "kind_of", "load_questions"]

# MATH's solution to this question plays with boxes and never boxes its answer.
_UNBOXED = {4060: "6"}


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        benchmark: Name of the benchmark.
        index: 0-based row of the data file.
        question: The query as prompted, before any template.
        gold: The gold answer: a number, LaTeX or a letter.
        options: Texts of the options of a multiple-choice question.
        solutions: All solutions of a system, where they are known; the benchmark's file names only the first.
        gold_number: MATH's numeric gold, for the paper's rules: int, float, or None.
    """

    benchmark: str
    index: int
    question: str
    gold: str
    options: tuple[str, ...] = ()
    solutions: tuple[str, ...] = ()
    gold_number: float | None = None


def benchmark(name: str, split: str = "test") -> Benchmark:
    """The benchmark of that name.

    Raises:
        UserError: No such benchmark or split.
    """
    if name not in BENCHMARKS:
        near = difflib.get_close_matches(name, BENCHMARKS, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(BENCHMARKS)}"
        raise UserError(f"there is no benchmark {name!r}; {hint}")
    if split == "test":
        return BENCHMARKS[name]
    if split != "train" or name not in TRAIN:
        raise UserError(f"{name} has no split {split!r}; expected test, or train for {', '.join(TRAIN)}")
    return TRAIN[name]


def kind_of(name: str) -> Kind:
    """What kind of answer the benchmark wants; `open` for the names of one's own variants."""
    return BENCHMARKS[name].kind if name in BENCHMARKS else "open"


def load_questions(
    name: str, data_dir: str | os.PathLike[str] | None = None, split: str = "test", limit: int | None = None
) -> list[Question]:
    """The questions of a benchmark in file order, the first `limit` of them.

    Raises:
        UserError: No such benchmark, or its file is missing or not the expected one.
    """
    text = benchmark_file(benchmark(name, split), data_dir).read_text(encoding="utf-8")
    if name in ("svamp", "simuleq", "sat_math", "mmlu_math"):
        rows = json.loads(text)
    else:
        # Not splitlines: a question may hold a Unicode line separator.
        rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    return [_question(name, index, row) for index, row in enumerate(rows[:limit])]


def _question(name: str, index: int, row: dict[str, Any]) -> Question:
    if name == "gsm8k":
        gold = row["answer"].split("#### ")[-1].replace(",", "").strip()
        return Question(name, index, row["question"].strip(), gold)
    if name == "svamp":
        gold = str(row["Answer"]).removesuffix(".0")
        return Question(name, index, f"{row['Body'].strip()} {row['Question'].strip()}", gold)
    if name == "simuleq":
        return Question(name, index, row["question"], str(row["answer"]))
    if name in ("math", "math500"):
        gold = (
            row.get("answer")
            or (_UNBOXED.get(index) if name == "math" else None)
            or _last_box(row["solution"])
        )
        return Question(name, index, row["problem"], gold, gold_number=gold_number(gold))
    if name == "aqua":
        options = tuple(option.split(")", 1)[1].strip() for option in row["options"])
        # The published loader spaces every parenthesis, those inside an option too.
        listed = ("(" + "(".join(row["options"])).replace("(", " (").replace(")", ") ")
        return Question(
            name, index, f"{row['question'].strip()}\nAnswer Choices:{listed}", row["correct"], options
        )
    if name == "sat_math":
        listed = row["question"].split("Answer Choices:")[-1]
        options = tuple(part.strip() for part in re.split(r"\([A-D]\)", listed)[1:])
        return Question(name, index, row["question"], row["answer"], options)
    options = tuple(row["choices"])
    listed = " ".join(f"({letter}) {option}" for letter, option in zip("ABCD", options, strict=True))
    return Question(
        name, index, f"{row['question']}\nAnswer Choices: {listed}", "ABCD"[row["answer"]], options
    )


def _last_box(solution: str) -> str:
    r"""Content of the last `\boxed`; a point that ends it is a slip of the file, not part of the answer."""
    rest = solution[solution.rindex("\\boxed") + len("\\boxed") :].lstrip()
    if not rest.startswith("{"):
        return re.split(r"[\s$]", rest, maxsplit=1)[0].rstrip(".")
    depth = 0
    for end, char in enumerate(rest):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth == 0:
            return " ".join(rest[1:end].split()).rstrip(".")
    raise UserError("the data of math has a box that never closes; expected the file named in the data table")


def gold_number(gold: str) -> float | None:
    """The number that the paper's MATH file carries beside the string: int, float, or None for an expression.

    Inferred: the paper's file is not public; integers and rational values are taken to carry their number.
    """
    value = evaluate(gold)
    if not isinstance(value, Fraction):
        return None
    try:
        return int(value) if value.denominator == 1 else float(value)
    except OverflowError:
        return None
