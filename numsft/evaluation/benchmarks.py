r"""The benchmarks: where each file comes from, and how its rows become questions.

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
from typing import Any, Literal

from numsft.errors import UserError
from numsft.evaluation.arithmetic import evaluate
from numsft.evaluation.download import benchmark_file

Kind = Literal["open", "math", "choice"]

_MAMMOTH = ("TIGER-AI-Lab/MAmmoTH2", "9c67cb137b87e3c2f68ab412c6731b1f47a51b55")
_GAIR = ("GAIR-NLP/math-evaluation-harness", "8e2c3ccc293610415629ae78e4f3805461e98452")
_GSM8K = ("openai/grade-school-math", "3101c7d5072418e28b9008a6636bde82a006892c")

# MATH's solution to this question plays with boxes and never boxes its answer.
_UNBOXED = {4060: "6"}


@dataclass(frozen=True)
class Benchmark:
    """A benchmark's file.

    Attributes:
        name: As on the command line.
        path: In the data folder.
        repo: Public GitHub repository.
        repo_path: Path there.
        commit: Commit there.
        sha256: Of the file.
        rows: Questions in it.
        kind: `open` (a number), `math` (LaTeX) or `choice` (a letter).
    """

    name: str
    path: str
    repo: str
    repo_path: str
    commit: str
    sha256: str
    rows: int
    kind: Kind


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


def _file(
    name: str, path: str, source: tuple[str, str], repo_path: str, sha256: str, rows: int, kind: Kind
) -> Benchmark:
    return Benchmark(name, path, source[0], repo_path, source[1], sha256, rows, kind)


_FILES = (
    _file(
        "gsm8k",
        "gsm8k/test.jsonl",
        _GSM8K,
        "grade_school_math/data/test.jsonl",
        "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        1319,
        "open",
    ),
    _file(
        "math",
        "math/test.jsonl",
        _GAIR,
        "data/math/test.jsonl",
        "3371949f33dd702d04b43fddd7d53a028de0aaca0e76abb1b875a050297b3aa4",
        5000,
        "math",
    ),
    _file(
        "math500",
        "math/math500.jsonl",
        _GAIR,
        "data/math_oai/test.jsonl",
        "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
        500,
        "math",
    ),
    _file(
        "svamp",
        "svamp/SVAMP.json",
        ("arkilpatel/SVAMP", "689d7ccac74b9983a2ac7cc3b264f441b99e7c53"),
        "SVAMP.json",
        "5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e",
        1000,
        "open",
    ),
    _file(
        "simuleq",
        "simuleq/simuleq.json",
        _MAMMOTH,
        "math_eval/dataset/simuleq/simuleq.json",
        "2fdc97194c641c7c969866a2a25f01e6c6ae36b00391467d33e15a1a7d4e75e1",
        514,
        "open",
    ),
    _file(
        "aqua",
        "aqua/test.json",
        ("google-deepmind/AQuA", "26b64ed1f22208c6742f47df547dfd65088ec30d"),
        "test.json",
        "de41581881ef95c5588c44ddc701c77fd480839241dd422a0d181262af24520c",
        254,
        "choice",
    ),
    _file(
        "sat_math",
        "sat_math/sat.json",
        _MAMMOTH,
        "math_eval/dataset/sat/sat.json",
        "8e551d655828c4162e3f098c7c8fa560f8ba4bc7b6f24a9caa205f23bcd861d9",
        220,
        "choice",
    ),
    _file(
        "mmlu_math",
        "mmlu_math/mathematics.json",
        _MAMMOTH,
        "math_eval/dataset/mmlu/mathematics.json",
        "4d07b027d398890e5bc1bbee5ed568fd4b3ba9bb4539d076fe082107d0e9d8bf",
        974,
        "choice",
    ),
)
BENCHMARKS: dict[str, Benchmark] = {file.name: file for file in _FILES}
TRAIN: dict[str, Benchmark] = {
    "gsm8k": _file(
        "gsm8k",
        "gsm8k/train.jsonl",
        _GSM8K,
        "grade_school_math/data/train.jsonl",
        "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
        7473,
        "open",
    )
}


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
            return rest[1:end].strip().rstrip(".")
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
