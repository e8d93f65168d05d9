"""From raw text to a scored row, under either rule book.

A row is one line of samples.jsonl. `score_rows` fills in what the rules make of its texts `pot` (first pass,
a program) and `cot` (backup pass); programs are run in one batch by the caller's `run_programs`, never here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol

from numsft.errors import UserError
from numsft.evaluation import paper_scoring, strict_scoring
from numsft.evaluation.benchmarks import Question, gold_number, kind_of, load_questions
from numsft.evaluation.verdict import Output, Verdict

Mode = Literal["paper", "strict"]
Row = dict[str, Any]
MODES: tuple[Mode, ...] = ("strict", "paper")
_RULES = {"paper": paper_scoring, "strict": strict_scoring}


class ProgramOutcome(Protocol):
    """What the sandbox says of one program; `numsft.evaluation.sandbox.Outcome` is one."""

    @property
    def stdout(self) -> str:
        """What it printed, also before an error."""

    @property
    def error(self) -> str | None:
        """None, "timeout", or the class name of the exception."""


RunPrograms = Callable[[Sequence[str]], Sequence[ProgramOutcome]]


def score_rows(
    questions: Sequence[Question], rows: Sequence[Row], mode: str, run_programs: RunPrograms | None
) -> list[Row]:
    """Scores rows against their questions.

    Args:
        questions: One for each row, in the same order.
        rows: With `pot` and/or `cot`, raw texts; None or absent is not generated. A `pot_stdout` of the same
            rules (`pot_rules`, or none named) stands for running the program.
        mode: `paper` or `strict`.
        run_programs: Runs programs and gives their outcomes in order; may be None where none has to run.

    Returns:
        New rows with all fields of the evaluation files, and `mode`, `extracted_by` and `pot_rules`;
        `cot_stdout` where the backup text was a program; `correct_any` on simuleq under the strict rules.

    Raises:
        UserError: An unknown mode, a row with neither text, or programs to run and nothing to run them.
    """
    if mode not in MODES:
        raise UserError(f"the mode is {mode!r}; expected strict or paper")
    rules = _RULES[mode]
    for question, row in zip(questions, rows, strict=True):
        if row.get("pot") is None and row.get("cot") is None:
            raise UserError(
                f"row {row.get('index')} of {question.benchmark} has neither pot nor cot; expected at "
                "least one text"
            )
    texts = [{name: _text(row, name, mode) for name in ("pot", "cot")} for row in rows]
    outputs: list[dict[str, Output | None]] = [{"pot": _stored(row, mode), "cot": None} for row in rows]
    # A multiple-choice text is always prose to the strict rules, and the paper runs it like any other.
    first: list[str] = [
        "pot"
        if text["pot"] is not None and not (kind_of(question.benchmark) == "choice" and text["cot"])
        else "cot"
        for question, text in zip(questions, texts, strict=True)
    ]
    verdicts = _pass(rules, questions, texts, outputs, first, range(len(rows)), run_programs)
    again = [
        i
        for i, verdict in enumerate(verdicts)
        if first[i] == "pot" and not verdict.answered and texts[i]["cot"] is not None
    ]
    for i, verdict in zip(
        again, _pass(rules, questions, texts, outputs, ["cot"] * len(rows), again, run_programs), strict=True
    ):
        first[i] = "cot"
        verdicts[i] = verdict
    return [
        _scored(row, question, mode, verdict, used, output)
        for row, question, verdict, used, output in zip(
            rows, questions, verdicts, first, outputs, strict=True
        )
    ]


def needs_backup(row: Row) -> bool:
    """Whether a scored row wants the backup pass: the first gave no answer, and no other text is there."""
    return (
        kind_of(row["benchmark"]) != "choice"
        and row.get("pot") is not None
        and row.get("cot") is None
        and not row["answered"]
    )


def rescore(
    rows: Iterable[Row],
    mode: str,
    data_dir: str | None = None,
    run_programs: RunPrograms | None = None,
) -> list[Row]:
    """Scores rows of a samples.jsonl again; question and gold are looked up where a row lacks them.

    Raises:
        UserError: A row names no benchmark or no such index, or what `score_rows` refuses.
    """
    rows = list(rows)
    loaded: dict[str, list[Question]] = {}
    return score_rows([_question_of(row, loaded, data_dir) for row in rows], rows, mode, run_programs)


def _question_of(row: Row, loaded: dict[str, list[Question]], data_dir: str | None) -> Question:
    name, index = row.get("benchmark"), row.get("index")
    if not isinstance(name, str) or not isinstance(index, int):
        raise UserError(f"a row has benchmark {name!r} and index {index!r}; expected a name and a row number")
    if row.get("question") is not None and row.get("gold") is not None:
        gold = str(row["gold"])
        number = gold_number(gold) if kind_of(name) == "math" else None
        return Question(
            name,
            index,
            row["question"],
            gold,
            solutions=tuple(row.get("solutions") or ()),
            gold_number=number,
        )
    if name not in loaded:
        loaded[name] = load_questions(name, data_dir)
    if not 0 <= index < len(loaded[name]):
        raise UserError(f"a row of {name} has index {index}; expected 0 to {len(loaded[name]) - 1}")
    return loaded[name][index]


def _text(row: Row, name: str, mode: str) -> str | None:
    text = row.get(name)
    if text is not None and mode == "paper" and row.get("stop_rules") == "strict":
        # Here, because the training template that prompts share brings the data libraries along.
        from numsft.evaluation.prompts import cut_at_stops

        return cut_at_stops(text)
    return text


def _stored(row: Row, mode: str) -> Output | None:
    """The output of a program that need not run again."""
    if row.get("pot_stdout") is None or row.get("pot_rules") not in (None, mode):
        return None
    return Output(row["pot_stdout"], row.get("pot_exec_error"))


def _pass(
    rules: Any,
    questions: Sequence[Question],
    texts: Sequence[dict[str, str | None]],
    outputs: Sequence[dict[str, Output | None]],
    names: Sequence[str],
    which: Sequence[int],
    run_programs: RunPrograms | None,
) -> list[Verdict]:
    """One pass over the rows `which`: runs their programs in one batch, then reads the answers."""
    programs: list[str] = []
    places: list[tuple[int, str]] = []
    for i in which:
        name, text = names[i], texts[i][names[i]]
        if text is None or outputs[i][name] is not None:
            continue
        program = rules.program(questions[i], text, name)
        if program is not None:
            programs.append(program)
            places.append((i, name))
    if programs:
        if run_programs is None:
            raise UserError(
                f"{len(programs)} rows hold programs that were not run under these rules; expected "
                "pot_stdout in the rows, or a sandbox to run them"
            )
        for (i, name), outcome in zip(places, run_programs(programs), strict=True):
            outputs[i][name] = Output(outcome.stdout, outcome.error)
    return [
        rules.verdict(questions[i], texts[i][names[i]] or "", outputs[i][names[i]], names[i]) for i in which
    ]


def _scored(
    row: Row, question: Question, mode: str, verdict: Verdict, used: str, outputs: dict[str, Output | None]
) -> Row:
    pot, cot = outputs["pot"], outputs["cot"]
    scored = {
        **row,
        "benchmark": question.benchmark,
        "index": question.index,
        "question": question.question,
        "gold": question.gold,
        "pot": row.get("pot"),
        "cot": row.get("cot"),
        "mode": mode,
        "pot_stdout": pot.stdout if pot else None,
        "pot_rules": mode if pot else None,
        "pot_ok": pot.error is None if pot else None,
        "pot_exec_error": pot.error if pot else None,
        "used_cot": used == "cot",
        "extracted": verdict.extracted,
        "extracted_by": verdict.source,
        "matched_by": verdict.matched_by,
        "correct": bool(verdict.matched_by),
        "answered": verdict.answered,
    }
    scored.pop("correct_any", None)
    scored.pop("cot_stdout", None)
    if cot is not None:
        scored["cot_stdout"] = cot.stdout
    if verdict.correct_any is not None:
        scored["correct_any"] = verdict.correct_any
    return scored
