"""The benchmark scripts run end to end on toy sizes and write their JSON; no test looks at a time."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOY = "--runs 1 --vocab 512 --hidden 32 --tokens 64 --threads 1 --device cpu".split()


def run_head_benchmark(tmp_path, *options):
    """Return what `benchmarks/head.py` wrote and what it printed."""
    output = tmp_path / "head.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "head.py"), *TOY, *options, "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(output.read_text()), done.stdout


def test_head_benchmark_measures_every_contender_and_prints_every_bound(tmp_path):
    result, printed = run_head_benchmark(tmp_path)
    contenders = {"backbone", "full_ce_del", "products", "products_frozen"} | {
        f"{name}{frozen}" for name in ("numsft_ce_del", "numsft_ce", "trl_ce") for frozen in ("", "_frozen")
    }
    assert set(result["runs"]) == set(result["medians"]) == contenders
    for figures in result["runs"].values():
        assert len(figures) == 1
        assert all(figure["seconds"] > 0 and figure["peak_mib"] >= 0 for figure in figures)
    bounds = {label: entry["bound"] for label, entry in result["ratios"].items() if "bound" in entry}
    assert sorted(bounds.values()) == [0.10, 0.75, 1.02, 1.02, 1.03, 1.03, 1.15, 1.15]
    assert all(label in printed for label in bounds)


def test_head_ratio_takes_the_backbone_off_both_sides(tmp_path):
    result, _ = run_head_benchmark(
        tmp_path, "--prompt-share", "0.5", "--only", "numsft_ce_del", "full_ce_del"
    )
    assert set(result["runs"]) == {"backbone", "numsft_ce_del", "full_ce_del"}
    peak = {name: entry["peak_mib"]["median"] for name, entry in result["medians"].items()}
    expected = (peak["numsft_ce_del"] - peak["backbone"]) / (peak["full_ce_del"] - peak["backbone"])
    assert result["ratios"]["memory numsft CE+DEL / full logits"]["ratio"] == expected
    assert result["setup"]["prompt_share"] == 0.5
