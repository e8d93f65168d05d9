"""The benchmark scripts run end to end on toy sizes and write their JSON; no test looks at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny_llama, tiny_tokenizer

ROOT = Path(__file__).resolve().parent.parent
TOY = "--runs 1 --vocab 512 --hidden 32 --tokens 64 --threads 1 --device cpu".split()


def run_head_benchmark(tmp_path, *options):
    """Return what `benchmarks/head.py` wrote and what it printed."""
    output = tmp_path / "head.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "head.py"), *TOY, *options, "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(output.read_text()), done.stdout


@pytest.mark.slow
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


@pytest.mark.slow
def test_step_benchmark_pairs_the_steps_of_every_contender(tmp_path):
    tokenizer = tiny_tokenizer()
    tiny_llama().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    output = tmp_path / "step.json"
    script = str(ROOT / "benchmarks" / "step.py")
    toy = "--pairs 2 --together 6 --tokens 64 --rows 2 --threads 1 --device cpu".split()
    toy += "--prompt-share 0.5 --adapters lora".split()
    command = [sys.executable, script, *toy, "--model", str(tmp_path / "model"), "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(output.read_text())
    steps = result["steps"]["lora"]
    assert set(steps) == {
        "trl_ce",
        "numsft_ce",
        "numsft_del",
        "trl_compute_loss_func",
        "hf_full_logits_del",
        "hf_full_logits_ntloss",
    }
    assert all(len(figures) == 2 for figures in steps.values())  # the first step, which sets up, is left out
    for entry in result["ratios"]:
        pairs = [
            a["seconds"] / b["seconds"]
            for a, b in zip(steps["numsft_del"], steps[entry["theirs"]], strict=True)
        ]
        assert entry["seconds"] == {
            "median": pytest.approx(sum(pairs) / 2),
            "min": min(pairs),
            "max": max(pairs),
        }
        assert "bound" not in entry  # the bounds are for rows without a masked prompt
    assert "trl_compute_loss_func" in done.stdout


def test_a_contender_that_dies_ends_the_benchmark_with_its_name(tmp_path):
    script = str(ROOT / "benchmarks" / "step.py")
    tokenizer = tiny_tokenizer()
    tiny_llama().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    command = [sys.executable, script, "--model", str(tmp_path), "--only", "numsft_nonesuch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1
    assert "The process of numsft_nonesuch ended early" in done.stderr
