"""Does the quickstart really improve the model? Three seeds, before and after.

    python studies/quickstart.py

Runs `recipes/quickstart.yaml` once a seed (data, adapter and order all change with it), writes
`studies/quickstart.json` and the README's table (that of the recipe's own seed, 0).
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numsft.report.blocks import with_block

ROOT = Path(__file__).resolve().parent.parent
RECIPE = "recipes/quickstart.yaml"
RESULTS = ROOT / "studies" / "quickstart.json"
README = ROOT / "README.md"
SEEDS = (0, 1, 2)


def run(seed: int, folder: str) -> dict[str, Any]:
    """Run the recipe with a seed and return what it printed, in figures."""
    command = [sys.executable, "-m", "numsft.run", RECIPE, "--seed", str(seed), "--output_dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    start = done.stdout.index("train_runtime: ")
    table = done.stdout[start:].split("\nsaved in")[0].strip()
    figures = {}
    for name in ("exact match", "log-MAE", "answered"):
        row = next(line for line in table.splitlines() if line.startswith(name))
        before, after = (float(cell.strip().rstrip("%")) for cell in row.split("|")[1:])
        figures[name] = {"before": before, "after": after}
    runtime = re.search(r"train_runtime: ([\d.]+)", table)
    assert runtime is not None
    return {"seed": seed, "train_runtime_s": float(runtime[1]), "printed": table, **figures}


def with_output(text: str, results: dict[str, Any]) -> str:
    """Return the README with the quickstart's output, as it was printed, and the gain over seeds."""
    gain = results["exact_match_gain_points"]
    note = (
        f"This is seed {results['runs'][0]['seed']}. Over {len(results['runs'])} seeds exact match rises by "
        f"{gain['mean']:.0f} points, by {gain['min']:.0f} at least (`studies/quickstart.json`). That is what "
        "the fine-tuning does as a whole; what a loss adds to it is another question: "
        "[does it help?](#does-it-help)"
    )
    return with_block(text, "quickstart", f"```\n{results['runs'][0]['printed']}\n```\n\n{note}")


def main() -> None:
    """Run all seeds, write the results and the README."""
    runs = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            runs.append(run(seed, folder))
        print(f"seed {seed}\n{runs[-1]['printed']}\n", flush=True)
    gains = [run["exact match"]["after"] - run["exact match"]["before"] for run in runs]
    results = {
        "command": "python studies/quickstart.py",
        "recipe": RECIPE,
        "environment": {
            "python": platform.python_version(),
            "processor_cores": os.cpu_count(),
            **{name: version(name) for name in ("torch", "transformers", "trl", "peft")},
        },
        "runs": runs,
        "exact_match_gain_points": {
            "mean": statistics.mean(gains),
            "min": min(gains),
            "standard_deviation": statistics.stdev(gains),
        },
    }
    RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    README.write_text(with_output(README.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
