"""Remapped items and their controls, as rows, with the count of what was refused and why."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.remap.binding import Program, bind
from numsft.evaluation.remap.control import control_rewrite
from numsft.evaluation.remap.draw import acceptable, range_draws, small_draws
from numsft.evaluation.remap.numerals import rewrite, write_like
from numsft.evaluation.remap.rejection import REASONS, Rejected
from numsft.evaluation.remap.second import second_derivation
from numsft.evaluation.remap.validate import program_problems, remap_problems

SPLITS = ("test", "train")
LEVELS = range(1, 13)


@dataclass(frozen=True)
class Remapped:
    """One variant: the new value of each free numeral, the new text and answer."""

    values: dict[int, Fraction]
    question: str
    answer: Fraction
    derived_twice: bool


def remap(program: Program, variants: int, seed: int, index: int, level: int | None = None) -> list[Remapped]:
    """Draws up to `variants` different remappings of a program, the same for the same arguments.

    Args:
        program: A bound item.
        variants: How many are wanted; fewer come back where fewer draws are acceptable.
        seed: Of the draws.
        index: The item's row, part of the seed.
        level: None for small steps, else the number range; see `range_draws`.

    Raises:
        Rejected: If there is not one: `prose disagrees` or `no valid draw`.
    """
    if problems := program_problems(program):
        raise AssertionError(problems[0])  # bind refuses these
    key = f"remap {seed} {index} {level}"
    draws = small_draws(program, key) if level is None else range_draws(program, level, key)
    found: dict[str, Remapped] = {}
    disagreed = ""
    for values in draws:
        if not acceptable(program, values, level):
            continue
        question = rewrite(program.question, program.numerals, values)
        answer = program.run(values)[-1]
        if question in found or remap_problems(program, values, question, answer):
            continue
        read, disagreements = second_derivation(program, values)
        if disagreements:
            disagreed = disagreements[0]
            break
        found[question] = Remapped(values, question, answer, read == len(program.steps))
        if len(found) == variants:
            break
    if disagreed:
        raise Rejected("prose disagrees", disagreed)
    if not found:
        raise Rejected("no valid draw")
    return list(found.values())


def read_gsm8k(data_dir: Path, split: str) -> list[dict[str, str]]:
    """Returns the rows of `DATA_DIR/gsm8k/SPLIT.jsonl`.

    Raises:
        UserError: If the file is missing or a line is no object with `question` and `answer` texts.
    """
    path = data_dir / "gsm8k" / f"{split}.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UserError(
            f"cannot read {path} ({reason}); give --data_dir the folder that holds gsm8k/{split}.jsonl."
        ) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        texts = [row.get(key) for key in ("question", "answer")] if isinstance(row, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise UserError(
                f"{path} line {number} is no object with question and answer texts; fetch the file again."
            )
        rows.append(row)
    return rows


def remap_rows(
    items: list[dict[str, str]], variants: int, seed: int, level: int | None = None
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Remaps every item that can be, each variant followed by its control.

    Args:
        items: With `question` and `answer` (the annotated solution); the position is the row's `index`.
        variants: Wanted for each item.
        seed: Of all draws.
        level: None for small steps, else the number range.

    Returns:
        The rows (`index`, `variant`, `kind`, `original_question`, `question`, `answer` and, beyond those,
        `original_answer`, `numeral_map` as [old, new] texts, `level`), and counts: each reason of refusal,
        `items remapped`, `items with every variant`, `variants`, `variants derived twice`.
    """
    rows: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    for index, item in enumerate(items):
        try:
            program = bind(item["question"], item["answer"])
            found = remap(program, variants, seed, index, level)
        except Rejected as rejected:
            counts[rejected.reason] += 1
            continue
        counts["items remapped"] += 1
        counts["items with every variant"] += len(found) == variants
        counts["variants"] += len(found)
        counts["variants derived twice"] += sum(variant.derived_twice for variant in found)
        controls: set[str] = set()
        for number, variant in enumerate(found):
            control = control_rewrite(
                item["question"], f"control {seed} {index} {number}", avoid=frozenset(controls)
            )
            controls.add(control)
            common = {"index": index, "variant": number, "original_question": item["question"]}
            original = str(program.gold)
            new_texts = [
                [program.numerals[i].text, _text_at(program, variant.values, i)] for i in program.free
            ]
            rows.append(
                common
                | {"kind": "remap", "question": variant.question, "answer": str(variant.answer)}
                | {"original_answer": original, "numeral_map": new_texts, "level": level}
            )
            rows.append(
                common
                | {"kind": "control", "question": control, "answer": original}
                | {"original_answer": original, "numeral_map": [], "level": level}
            )
    return rows, counts


def coverage_table(counts: Counter[str], total: int) -> str:
    """Returns a Markdown table: how many items were remapped, and how many were refused for each reason."""
    lines = ["| items | count | share | why |", "|---|---|---|---|", f"| all | {total} | 100.0 % | |"]
    lines.append(_line("items remapped", counts["items remapped"], total, "at least one variant"))
    lines.append(_line("items with every variant", counts["items with every variant"], total, ""))
    refused = sorted((reason for reason in REASONS if counts[reason]), key=lambda reason: -counts[reason])
    lines += [_line(reason, counts[reason], total, REASONS[reason]) for reason in refused]
    lines.append("")
    lines.append(
        f"{counts['variants']} variants, {counts['variants derived twice']} of them also derived in full "
        "from the solution's own words."
    )
    return "\n".join(lines)


def _line(name: str, count: int, total: int, why: str) -> str:
    share = 100 * count / total if total else 0.0
    return f"| {name} | {count} | {share:.1f} % | {why} |"


def _text_at(program: Program, values: dict[int, Fraction], i: int) -> str:
    return write_like(program.numerals[i], values[i])
