"""Scored rows as an evaluation writes them, made up from a seed: models of a given skill on made-up questions."""

from __future__ import annotations

import random


def scored_row(benchmark: str, index: int, gold: str, extracted: str, correct: bool, **more) -> dict:
    return {
        "benchmark": benchmark,
        "index": index,
        "question": f"question {index} of {benchmark}",
        "gold": gold,
        "pot": "print(1)",
        "cot": None,
        "pot_stdout": extracted,
        "pot_ok": True,
        "pot_exec_error": None,
        "used_cot": False,
        "extracted": extracted,
        "matched_by": "exact" if correct else None,
        "correct": correct,
        "answered": extracted != "",
        **more,
    }


def open_rows(benchmark: str, n: int, skill: float, seed: int = 0, decimals: int = 0) -> list[dict]:
    """Golds of one to five digits, the same for any skill; a wrong answer is off by a digit or two."""
    golds, answers = random.Random(f"{benchmark}|{seed}"), random.Random(f"{benchmark}|{seed}|{skill}")
    rows = []
    for index in range(n):
        gold = str(golds.randint(1, 10 ** golds.choice([1, 2, 2, 2, 3, 3, 4, 5])))
        if decimals and golds.random() < 0.2:
            gold += f".{golds.randint(1, 9)}"
        draw = answers.random()
        wrong = str(int(int(float(gold)) * answers.choice([0.1, 0.5, 0.9, 1.1, 2, 10])) + answers.randint(1, 3))
        extracted = gold if draw < skill else "" if draw > 0.97 else wrong
        rows.append(scored_row(benchmark, index, gold, extracted, extracted == gold))
    return rows


def choice_rows(benchmark: str, n: int, skill: float, seed: int = 0) -> list[dict]:
    draw = random.Random(f"{benchmark}|{seed}|{skill}")
    rows = []
    for index in range(n):
        gold = "ABCDE"[(index * 7) % 5]
        extracted = gold if draw.random() < skill else draw.choice(["", *"ABCDE"])
        row = scored_row(benchmark, index, gold, extracted, extracted == gold)
        rows.append({**row, "pot": None, "pot_stdout": None, "pot_ok": None, "cot": extracted})
    return rows
