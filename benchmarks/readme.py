"""Fill the README's figures from the committed results: `python benchmarks/readme.py`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contenders import label

from numsft.losses import NUMBER_LOSSES
from numsft.report.blocks import with_block

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
STEPS = ("step_cpu_lora.json", "step_cpu_full.json", "step_cpu_half_prompt.json")


def read(name: str) -> dict[str, Any]:
    """Return a committed result."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def head_block() -> str:
    """Return the head's ratios in Markdown, what they were measured on, and what the losses add."""
    head = read("head_cpu.json")
    setup, where = head["setup"], head["environment"]
    rows = ["| ratio | of the medians | smallest to largest run | wanted at most |", "|---|---|---|---|"]
    for name, ratio in head["ratios"].items():
        wanted = f"{ratio['bound']:g}" if "bound" in ratio else "–"
        rows.append(
            f"| {name} | {ratio['ratio']:.3f} | {ratio['min']:.3f} to {ratio['max']:.3f} | {wanted} |"
        )
    missed = [
        name for name, ratio in head["ratios"].items() if ratio["ratio"] > ratio.get("bound", ratio["ratio"])
    ]
    note = (
        f"V = {setup['vocab']:,}, H = {setup['hidden']}, {setup['tokens']:,} tokens, {setup['dtype']}, "
        f"{setup['runs']} interleaved runs, each in a fresh process, {where['threads']} threads of "
        f"{where['device']} (`benchmarks/results/head_cpu.json`). The last column is what we ask of the "
        f"package; not reached: {', '.join(missed) or 'none'}."
    )
    return "\n".join([*rows, "", note, "", losses_note(read("losses_cpu.json"))])


def losses_note(losses: dict[str, Any]) -> str:
    """Return what the number losses and EMO add to the head's time: medians over rounds, and their range."""
    setup, medians = losses["setup"], {}
    for name, entry in losses["results"].items():
        base = losses["results"]["ce, 1110" if name.endswith(", 1110") else "ce"]["seconds"]
        medians[name] = statistics.median(a / b for a, b in zip(entry["seconds"], base, strict=True))

    def span(names: list[str]) -> str:
        found = sorted(medians[name] for name in names)
        return f"{found[0]:.2f} to {found[-1]:.2f}, the middle one {statistics.median(found):.2f}"

    ten = [name for name in medians if name in NUMBER_LOSSES]
    wide = [name for name in medians if name.endswith(", 1110") and not name.startswith("ce")]
    emo = max(ratio for name, ratio in medians.items() if name.startswith("emo"))
    return (
        f"Each number loss in turn, {setup['tokens']:,} tokens at the same V and H: the head with it takes "
        f"{span(ten)}, of the time with cross-entropy alone; with 1,110 number tokens {span(wide)}. A figure "
        f"below 1 is noise, and so may one above be. EMO takes {emo:.2f} (medians over {setup['runs']} "
        "rounds, `benchmarks/results/losses_cpu.json`)."
    )


def step_block() -> str:
    """Return the ratios of a whole training step, numsft with DEL against each contender."""
    rows = [
        "| numsft, CE + DEL, against | training | time, median (min to max) | memory | time wanted at most |",
        "|---|---|---|---|---|",
    ]
    notes = []
    for name in STEPS:
        result = read(name)
        setup, where = result["setup"], result["environment"]
        masked = ", half the tokens masked" if setup["prompt_share"] else ""
        for entry in result["ratios"]:
            time, memory = entry["seconds"], entry["total_mib"]
            bound = f"{entry['bound']:g}" if "bound" in entry else "–"
            rows.append(
                f"| {label(entry['theirs'])} | {entry['adapter']}{masked} | {time['median']:.3f} "
                f"({time['min']:.3f} to {time['max']:.3f}) | {memory['median']:.3f} | {bound} |"
            )
        notes.append(f"{setup['pairs']} (`benchmarks/results/{name}`)")
    note = (
        f"SmolLM2-135M in float32, {setup['tokens']:,} tokens in {setup['rows']} rows, from fetching the "
        f"batch to the optimiser's update, {where['threads']} threads of {where['device']}. Each contender "
        "is a process of its own; they step in turn, and a ratio is the median over pairs of steps: "
        f"{', '.join(notes)}. Memory is the whole process's peak, weights and optimiser included."
    )
    return "\n".join([*rows, "", note])


def scale_block() -> str:
    """Return how the head grows with tokens: numsft with DEL, beside TRL and full logits."""
    result = read("scale_cpu.json")
    setup, flat = result["setup"], result["flat in tokens"]
    tokens = sorted({point["value"] for point in result["points"] if point["axis"] == "tokens"})
    chunk, last = setup["chunk_tokens"], tokens[-1]
    memory, time = (flat[f"{quantity}, largest / smallest"] for quantity in ("memory", "time a token"))

    def mib(contender: str) -> str:
        medians = {
            point["value"]: point["head_mib"]["median"]
            for point in result["points"]
            if (point["axis"], point["contender"]) == ("tokens", contender)
        }
        return f"{medians[chunk]:,.0f} to {medians[last]:,.0f}"

    return (
        f"From a full chunk ({chunk:,} tokens at V = {setup['base_vocab']:,}) to {last:,} tokens, the head "
        f"with CE + DEL goes from {mib('numsft_ce_del')} MiB (over all sizes, the largest is {memory:.2f} "
        f"times the smallest), TRL's from {mib('trl_ce')}, full logits from {mib('full_ce_del')}. Its time a "
        f"token varies by a factor of {time:.2f}. H = {setup['hidden']}, {setup['runs']} rounds, each run in "
        "a fresh process (`benchmarks/results/scale_cpu.json`).\n\n"
        "![time and memory of the head as tokens, vocabulary and number tokens grow]"
        "(benchmarks/results/scale_cpu.png)"
    )


BLOCKS: dict[str, Callable[[], str]] = {"head": head_block, "step": step_block, "scale": scale_block}
"""Name of the markers in the README -> what stands between them."""


def with_figures(text: str) -> str:
    """Return the README with the blocks between the markers rewritten."""
    for name, block in BLOCKS.items():
        text = with_block(text, name, block())
    return text


if __name__ == "__main__":
    README.write_text(with_figures(README.read_text(encoding="utf-8")), encoding="utf-8")
