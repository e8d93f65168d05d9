import json
from dataclasses import dataclass
from random import Random

import pytest
from fake_rows import choice_rows, open_rows, scored_row

from numsft.errors import UserError
from numsft.evaluation.entropy import EntropySums
from numsft.evaluation.scores import scores

FEW = 200


@dataclass(frozen=True)
class Isolation:
    level: str = "full"
    landlock: bool = True


def hand_rows():
    return [
        scored_row("simuleq", 0, "18", "18", True, correct_any=True),
        scored_row("simuleq", 1, "120", "20", False, correct_any=True, used_cot=True),
        scored_row("simuleq", 2, "5", "", False, correct_any=False, used_cot=True, pot_exec_error="timeout"),
        scored_row("simuleq", 3, "12.5", "12.5", True, correct_any=True),
    ]


def test_every_field_of_a_benchmark_by_hand():
    result = scores(hand_rows(), "strict", isolation=Isolation(), settings={"limit": 4}, resamples=FEW)
    assert (result["mode"], result["macc"], result["macc_over"]) == ("strict", 0.5, ["simuleq"])
    assert result["sandbox"] == {"isolation": "full", "landlock": True}
    assert result["settings"] == {"limit": 4} and "python" in result["versions"]
    entry = result["benchmarks"]["simuleq"]
    assert (entry["n"], entry["n_numeric"], entry["accuracy"], entry["accuracy_any"]) == (4, 4, 0.5, 0.75)
    assert (entry["answered"], entry["used_cot"], entry["coverage"]) == (0.75, 0.5, 0.75)
    assert entry["log_mae"]["ln_eps"] == pytest.approx(1.791759 / 3, abs=1e-6)
    assert entry["log_mae"]["ln1p"] == pytest.approx(1.751268 / 3, abs=1e-6)
    assert entry["log_mae"]["ln1p_median"] == 0
    assert entry["log_mae"]["log10p1"] == pytest.approx(1.751268 / 3 / 2.302585, abs=1e-6)
    assert list(entry["places"]) == ["0", "1", "2", "3", "4", "-1"]
    assert {**entry["places"]["2"], "mae_ci95": None} == {"n": 1, "mae": 1, "acc": 0, "mae_ci95": None}
    assert entry["places"]["4"] == {"n": 0, "mae": None, "acc": None, "mae_ci95": None}
    assert entry["sign_accuracy"] == 1 and entry["length_accuracy"] == pytest.approx(2 / 3)
    worst = entry["worst_case"]
    assert worst["places"]["0"] == {"n": 4, "mae": 5 / 4, "acc": 3 / 4}
    assert worst["length_accuracy"] == 0.5
    assert worst["log_mae"]["ln_eps"] == pytest.approx((1.791759 + 1.609438) / 4, abs=1e-6)
    low, high = entry["accuracy_ci95"]
    assert 0 <= low < 0.5 < high <= 1
    assert entry["pot_errors"] == {"timeout": 1} and entry["matched_by"] == {"exact": 2}


def test_macc_is_the_mean_over_the_papers_benchmarks_that_were_scored():
    rows = open_rows("gsm8k", 40, 0.5) + choice_rows("aqua", 20, 0.9) + open_rows("math500", 30, 0.1)
    result = scores(rows, "paper", resamples=FEW)
    found = result["benchmarks"]
    assert result["macc"] == (found["gsm8k"]["accuracy"] + found["aqua"]["accuracy"]) / 2
    assert result["macc_over"] == ["gsm8k", "aqua"]
    alone = scores(open_rows("math500", 30, 0.1), "paper", resamples=FEW)
    assert alone["macc"] is None and alone["macc_over"] == []


def test_letters_have_no_numeric_metrics():
    rows = [scored_row("aqua", 0, "E", "E", True), scored_row("aqua", 1, "A", "", False)]
    entry = scores(rows, "strict", resamples=FEW)["benchmarks"]["aqua"]
    assert (entry["n_numeric"], entry["coverage"], entry["sign_accuracy"]) == (0, None, None)
    assert set(entry["log_mae"].values()) == {None} and entry["log_mae_ci95"] is None
    assert (entry["accuracy"], entry["answered"]) == (0.5, 0.5)


def test_only_numeric_golds_take_part_in_the_numeric_metrics():
    rows = [
        scored_row("math", 0, "x+1", "x+1", True),
        scored_row("math", 1, "\\frac{1}{2}", "\\frac{1}{2}", True),
        scored_row("math", 2, "7", "\\pi", False),
    ]
    entry = scores(rows, "strict", resamples=FEW)["benchmarks"]["math"]
    assert (entry["n"], entry["n_numeric"], entry["coverage"]) == (3, 2, 0.5)
    assert entry["places"]["0"]["n"] == 1


def test_scores_are_json_and_the_same_for_any_order_of_rows():
    rows = open_rows("gsm8k", 60, 0.4) + open_rows("simuleq", 30, 0.6, decimals=1) + choice_rows("aqua", 30, 0.2)
    once = json.dumps(scores(rows, "strict", resamples=FEW)["benchmarks"], allow_nan=False, sort_keys=True)
    Random(0).shuffle(rows)
    assert once == json.dumps(
        scores(rows, "strict", resamples=FEW)["benchmarks"], allow_nan=False, sort_keys=True
    )


def test_the_metrics_on_parsed_answers_flatter_a_model_that_answers_less_and_the_worst_case_shows_it():
    rows = open_rows("gsm8k", 300, 0.5)
    silent = [{**row, "extracted": row["extracted"] if row["correct"] else ""} for row in rows]
    honest, quiet = (scores(part, "strict", resamples=FEW)["benchmarks"]["gsm8k"] for part in (rows, silent))
    assert quiet["log_mae"]["ln_eps"] == 0 and quiet["coverage"] < honest["coverage"]
    assert quiet["worst_case"]["log_mae"]["ln_eps"] > honest["log_mae"]["ln_eps"] > 0


def test_entropies_become_means():
    sums = EntropySums(4, 10, 2.0, 5.0, 1.0, 3.0)
    result = scores(hand_rows(), "strict", entropies={"simuleq": {"generated": sums}}, resamples=FEW)
    found = result["benchmarks"]["simuleq"]["entropy"]["generated"]
    assert (found["digit_entropy"], found["other_entropy"], found["digit_mass"]) == (0.5, 0.5, 0.75)


@pytest.mark.parametrize(
    ("rows", "mode", "message"),
    [
        ([], "strict", "no scored row"),
        (hand_rows(), "loose", "'loose'"),
        ([*hand_rows(), hand_rows()[1]], "strict", "simuleq row 1 is there twice"),
        ([{"benchmark": "gsm8k", "index": 0, "pot": "print(1)"}], "strict", "'correct'"),
    ],
)
def test_what_cannot_be_scored_is_refused(rows, mode, message):
    with pytest.raises(UserError, match=message):
        scores(rows, mode)
