"""How the LM head's time and memory grow with tokens, vocabulary and number tokens.

    python benchmarks/scale.py --runs 2 --output benchmarks/results/scale_cpu.json

Every point is `benchmarks/head.py` at another size, one fresh process a contender: one axis grows, the other
two stay. The whole grid is run once a round. The head is a contender minus the backbone alone, by rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from head import CLASSES
from measure import command, environment, interleave, run_fresh, spread

from numsft.head_pass import default_chunk_size

HEAD = str(Path(__file__).resolve().parent / "head.py")
CONTENDERS = ("numsft_ce_del", "numsft_ce", "trl_ce", "full_ce_del")
AXES = {
    "tokens": (1024, 2048, 4096, 8192, 16_384),
    "vocab": (32_768, 65_536, 131_072, 262_144),
    "classes": CLASSES,
}
"""Axis -> its points."""


def grid(axes: dict[str, Sequence[int]], contenders: Sequence[str]) -> dict[str, tuple[str, int, str]]:
    """Return the runs of a round by name: axis, value, contender; the backbone once a point."""
    return {
        f"{axis}={value} {name}": (axis, value, name)
        for axis, values in axes.items()
        for value in values
        for name in ("backbone", *contenders)
    }


def heads(figures: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Return each point and contender with its head, seconds and MiB: median and spread over the rounds."""
    points = []
    for name, runs in figures.items():
        point, contender = name.split()
        if contender == "backbone":
            continue
        axis, value = point.split("=")
        backbone = figures[f"{point} backbone"]
        entry: dict[str, Any] = {"axis": axis, "value": int(value), "contender": contender}
        for key, shown in (("seconds", "head_seconds"), ("peak_mib", "head_mib")):
            entry[shown] = spread([run[key] - base[key] for run, base in zip(runs, backbone, strict=True)])
        points.append(entry)
    return points


def flatness(points: list[dict[str, Any]], chunk: int) -> dict[str, float]:
    """Return how far numsft's head with DEL is from flat in tokens, from one full chunk of tokens up.

    Fewer tokens than a chunk hold fewer logits, so they take less memory still.
    """
    ours = [
        p
        for p in points
        if p["axis"] == "tokens" and p["contender"] == "numsft_ce_del" and p["value"] >= chunk
    ]
    if len(ours) < 2:
        return {}
    memory = [p["head_mib"]["median"] for p in ours]
    time = [p["head_seconds"]["median"] / p["value"] for p in ours]
    return {
        "memory, largest / smallest": max(memory) / min(memory),
        "time a token, largest / smallest": max(time) / min(time),
    }


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds over the whole grid")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--only", nargs="+", default=CONTENDERS, choices=CONTENDERS)
    for axis, values in AXES.items():
        parser.add_argument(
            f"--{axis}", type=int, nargs="*", default=values, help="points of this axis, none to leave it out"
        )
    parser.add_argument("--base-tokens", type=int, default=2048, help="positions a step on the other axes")
    parser.add_argument("--base-vocab", type=int, default=49_152)
    parser.add_argument("--hidden", type=int, default=576)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1, help="timed steps a process, after the first")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="torch threads on a CPU")
    return parser.parse_args(argv)


def main() -> None:
    """Measure the grid and write the JSON after every round."""
    args = parse()
    runs = grid({axis: getattr(args, axis) for axis in AXES}, args.only)
    chunk = default_chunk_size(torch.device(args.device), args.base_vocab)
    common = {key: getattr(args, key) for key in ("hidden", "rows", "steps", "dtype", "device", "threads")}

    def run(name: str) -> dict[str, float]:
        axis, value, contender = runs[name]
        sizes = {"tokens": args.base_tokens, "vocab": args.base_vocab, "classes": CLASSES[0], axis: value}
        return run_fresh(
            HEAD,
            [f"--contender={contender}", *(f"--{key}={size}" for key, size in (common | sizes).items())],
        )

    for figures in interleave(list(runs), args.runs, run):
        points = heads(figures)
        result = {
            "command": command(),
            "setup": common
            | {"base_tokens": args.base_tokens, "base_vocab": args.base_vocab, "chunk_tokens": chunk}
            | {"runs": len(next(iter(figures.values())))},
            "environment": environment(torch.device(args.device), args.threads),
            "flat in tokens": flatness(points, chunk),
            "points": points,
            "runs": figures,
        }
        if args.output:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(json.dumps(result, indent=2) + "\n")
    print_report(result)


def print_report(result: dict[str, Any]) -> None:
    """Print every point and how flat numsft's head is in tokens."""
    print(f"{'axis':8} {'value':>8} {'contender':16} {'head s':>9} {'head MiB':>10}")
    for p in result["points"]:
        print(
            f"{p['axis']:8} {p['value']:8} {p['contender']:16} {p['head_seconds']['median']:9.3f} "
            f"{p['head_mib']['median']:10.0f}"
        )
    for name, ratio in result["flat in tokens"].items():
        print(f"numsft CE+DEL, {name}: {ratio:.3f}")


if __name__ == "__main__":
    main()
