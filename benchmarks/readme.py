"""Fill the README's figures from the committed results: `python benchmarks/readme.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numsft.report.blocks import with_block

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
STEPS = ("step_cpu_lora.json", "step_cpu_full.json", "step_cpu_half_prompt.json")
CONTENDERS = {
    "trl_ce": "TRL, cross-entropy alone",
    "numsft_ce": "numsft, cross-entropy alone",
    "trl_compute_loss_func": "TRL with CE + DEL through `compute_loss_func`",
    "hf_full_logits_del": "Trainer on full logits, CE + DEL as published",
    "hf_full_logits_ntloss": "Trainer on full logits, CE + `ntloss`",
}


def read(name: str) -> dict[str, Any]:
    """Return a committed result."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def head_block() -> str:
    """Return the head's ratios in Markdown, what they were measured on, and what the losses add."""
    head = read("head_cpu.json")
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
        f"{where['device']} (`benchmarks/results/head_cpu.json`)."
    )
    return "\n".join([*rows, "", note, "", losses_note(read("losses_cpu.json"))])


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
        f"{max(emo):.2f} (`benchmarks/results/losses_cpu.json`, noise included)."
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
                f"| {CONTENDERS[entry['theirs']]} | {entry['adapter']}{masked} | {time['median']:.3f} "
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
        f"with CE + DEL takes {mib('numsft_ce_del')} MiB (largest over smallest {memory:.2f}), TRL's "
        f"{mib('trl_ce')}, full logits {mib('full_ce_del')}. The time a token varies by a "
        f"factor of {time:.2f}. H = {setup['hidden']}, {setup['runs']} rounds, each run in a fresh process "
        "(`benchmarks/results/scale_cpu.json`).\n\n"
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
