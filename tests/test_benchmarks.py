"""The benchmark scripts run end to end on toy sizes and write their JSON; no test looks at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import script_module
from tiny import tiny_llama, tiny_tokenizer

from numsft import NumberVocab

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


def test_steps_are_compared_within_the_group_that_took_turns():
    script = script_module(ROOT / "benchmarks" / "step.py")
    names = ["numsft_ce", "numsft_emo", "numsft_del", "numsft_crps"]
    assert script.groups(names, "numsft_ce", 3) == [
        ["numsft_ce", "numsft_emo", "numsft_del"],
        ["numsft_ce", "numsft_crps"],
    ]

    def steps(*seconds):
        return [{"seconds": value, "peak_mib": 1.0, "total_mib": 2.0} for value in seconds]

    figures = {"numsft_del": steps(2.0, 4.0, 3.0), "trl_ce": steps(4.0, 4.0, 4.0)}
    (entry,) = script.ratios("lora", "numsft_del", figures, masked=False)
    assert entry["seconds"] == {"median": 0.75, "min": 0.5, "max": 1.0}
    assert (entry["theirs"], entry["bound"]) == ("trl_ce", 0.95)
    (entry,) = script.ratios("lora", "trl_ce", figures, masked=False)
    assert entry["seconds"]["median"] == pytest.approx(4 / 3)
    assert "bound" not in entry


@pytest.mark.slow
def test_scale_benchmark_measures_every_point_and_is_drawn(tmp_path):
    output = tmp_path / "scale_toy.json"
    toy = "--runs 2 --tokens 32 64 --vocab --classes 1110 --base-tokens 32 --base-vocab 2048".split()
    toy += "--hidden 32 --rows 2 --steps 0 --threads 1 --device cpu --only numsft_ce_del".split()
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), *toy, "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(output.read_text())
    found = [(point["axis"], point["value"], point["contender"]) for point in result["points"]]
    assert found == [
        ("tokens", 32, "numsft_ce_del"),
        ("tokens", 64, "numsft_ce_del"),
        ("classes", 1110, "numsft_ce_del"),
    ]
    assert all(len(runs) == 2 for runs in result["runs"].values())
    point = result["points"][1]
    ours, base = (result["runs"][f"tokens=64 {name}"] for name in ("numsft_ce_del", "backbone"))
    rounds = [a["seconds"] - b["seconds"] for a, b in zip(ours, base, strict=True)]
    assert point["head_seconds"] == {
        "median": pytest.approx(sum(rounds) / 2),
        "min": min(rounds),
        "max": max(rounds),
    }
    assert result["flat in tokens"] == {}  # both sizes fit into one chunk
    command = [sys.executable, str(ROOT / "benchmarks" / "plot.py"), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout.strip() == str(output.with_suffix(".png")), done.stderr[-2000:]
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_flatness_is_that_of_our_head_from_a_full_chunk_up():
    flatness = script_module(ROOT / "benchmarks" / "scale.py").flatness

    def point(value, seconds, mib, contender="numsft_ce_del", axis="tokens"):
        figures = {"head_seconds": {"median": seconds}, "head_mib": {"median": mib}}
        return {"axis": axis, "value": value, "contender": contender} | figures

    points = [point(1, 9.0, 1.0), point(2, 2.0, 10.0), point(4, 6.0, 11.0)]
    points += [point(8, 99.0, 99.0, contender="trl_ce"), point(8, 99.0, 99.0, axis="vocab")]
    assert flatness(points, 2) == {
        "memory, largest / smallest": pytest.approx(1.1),
        "time a token, largest / smallest": pytest.approx(1.5),
    }
    assert flatness(points, 4) == {}


def test_the_head_benchmarks_vocabulary_has_as_many_number_tokens_as_asked_for():
    script = script_module(ROOT / "benchmarks" / "head.py")
    for classes in script.CLASSES:
        vocab = NumberVocab.from_tokenizer(script.digit_tokenizer(classes))
        assert len(vocab.token_ids) == classes
        assert vocab.values.max() == {10: 9, 110: 99, 1110: 999}[classes]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks" / "results").glob("*.png")), ids=lambda p: p.name
)
def test_every_committed_picture_has_its_figures(path):
    assert path.with_suffix(".json").exists()


def test_a_contender_that_dies_ends_the_benchmark_with_its_name(tmp_path):
    script = str(ROOT / "benchmarks" / "step.py")
    tokenizer = tiny_tokenizer()
    tiny_llama().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    command = [sys.executable, script, "--model", str(tmp_path), "--only", "numsft_nonesuch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1
    assert "The process of numsft_nonesuch ended early" in done.stderr
