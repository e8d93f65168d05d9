"""Fill the README's figures from the committed results: `python benchmarks/readme.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
HEAD = ROOT / "benchmarks" / "results" / "head_cpu.json"
LOSSES = ROOT / "benchmarks" / "results" / "losses_cpu.json"
BEGIN, END = "<!-- head: begin -->", "<!-- head: end -->"


def head_table(head: dict[str, Any]) -> str:
    """Return the head's ratios in Markdown, and what they were measured on."""
    setup, where = head["setup"], head["environment"]
    rows = ["| ratio, medians | measured | runs | wanted at most |", "|---|---|---|---|"]
    for name, ratio in head["ratios"].items():
        wanted = f"{ratio['bound']:g}" if "bound" in ratio else "–"
        rows.append(
            f"| {name} | {ratio['ratio']:.3f} | {ratio['min']:.3f} to {ratio['max']:.3f} | {wanted} |"
        )
    note = (
        f"V = {setup['vocab']:,}, H = {setup['hidden']}, {setup['tokens']:,} tokens, {setup['dtype']}, "
        f"{setup['runs']} interleaved runs, each in a fresh process, {where['threads']} threads of "
        f"{where['device']} (`{HEAD.relative_to(ROOT)}`)."
    )
    return "\n".join([*rows, "", note])


def losses_note(losses: dict[str, Any]) -> str:
    """Return one sentence on what the number losses and EMO add to the head's time."""
    ratios = {name: entry["ratio_to_ce"] for name, entry in losses["results"].items()}
    emo = [ratio for name, ratio in ratios.items() if name.startswith("emo")]
    wide = [ratio for name, ratio in ratios.items() if name.endswith(", 1110") and not name.startswith("ce")]
    ten = [
        r for name, r in ratios.items() if not name.startswith(("ce", "emo")) and not name.endswith(", 1110")
    ]
    return (
        f"Over all number losses, the head's time with one is {min(ten):.2f} to {max(ten):.2f} of that of "
        f"cross-entropy alone with ten classes, {min(wide):.2f} to {max(wide):.2f} with 1,110; EMO takes "
        f"{max(emo):.2f} (`{LOSSES.relative_to(ROOT)}`, noise included)."
    )


def with_figures(text: str) -> str:
    """Return the README with the block between the markers rewritten."""
    head = json.loads(HEAD.read_text(encoding="utf-8"))
    losses = json.loads(LOSSES.read_text(encoding="utf-8"))
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{head_table(head)}\n\n{losses_note(losses)}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_figures(README.read_text(encoding="utf-8")), encoding="utf-8")
