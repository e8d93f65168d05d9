"""`numsft.report`: tables and plots from whatever a folder holds."""

import json

import pytest

from numsft.report import report
from numsft.report.__main__ import main
from numsft.report.study_plots import mean_curve, sweeps
from numsft.report.study_table import study_table

LOG = [
    {"step": 1, "loss": 2.0, "token_loss": 1.9, "digit_accuracy": 0.1, "learning_rate": 1e-3},
    {"step": 2, "loss": 1.0, "token_loss": 0.9, "digit_accuracy": 0.2, "learning_rate": 5e-4},
    {"step": 2, "eval_token_loss": 1.0, "eval_digit_accuracy": 0.15, "eval_log_mae": 0.4},
]


def test_a_training_run_gets_its_curves(tmp_path, capsys):
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": LOG}))
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "training.png")]
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_logged_nothing_has_no_picture(tmp_path):
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": []}))
    assert main([str(tmp_path)]) == 2


@pytest.mark.parametrize("content", ["{", "[]", '{"other": 1}'])
def test_a_file_that_is_not_ours_is_one_sentence(tmp_path, content, capsys):
    (tmp_path / "results.json").write_text(content)
    assert main([str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert "results.json" in printed and printed.count("\n") == 1


def test_an_empty_folder_says_what_was_expected(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "holds no scores.json, results.json or trainer_state.json" in capsys.readouterr().err


def test_a_mean_curve_takes_the_steps_that_all_runs_have():
    runs = [
        {"curves": {"x": {"step": [1, 2, 3], "value": [1.0, 2.0, 3.0]}}},
        {"curves": {"x": {"step": [2, 3, 4], "value": [4.0, 5.0, 6.0]}}},
        {"curves": {}},
    ]
    assert mean_curve(runs, "x") == ([2, 3], [3.0, 4.0])
    assert mean_curve(runs, "y") == ([], [])


def test_a_sweep_groups_objectives_that_differ_in_one_number():
    objectives = {
        "ce": {"number_loss": "none"},
        **{f"del_{w}": {"number_loss": "del", "number_loss_weight": w} for w in (0.1, 0.01, 1)},
        **{f"ntl_was_{w}": {"number_loss": "ntl_was", "number_loss_weight": w} for w in (3, 30, 0.3)},
        "dist2_1": {"number_loss": "dist2", "number_loss_weight": 1},
    }
    assert sweeps(objectives) == (
        "number_loss_weight",
        {
            "del": {0.01: "del_0.01", 0.1: "del_0.1", 1.0: "del_1"},
            "ntl_was": {0.3: "ntl_was_0.3", 3.0: "ntl_was_3", 30.0: "ntl_was_30"},
        },
    )
    rates = {f"lr_{rate}": {"learning_rate": float(rate)} for rate in ("5e-4", "1e-3", "2e-3")}
    assert sweeps(rates)[1] == {"lr": {5e-4: "lr_5e-4", 1e-3: "lr_1e-3", 2e-3: "lr_2e-3"}}
    assert sweeps({"a": {"packing": True}, "b": {"packing": False}}) == ("", {})


def study_results(metrics, objectives):
    """A `results.json` of one seed, `metrics` the same for every objective."""
    cells = {name: {"mean": value, "sd": None, "n": 1, "difference": None} for name, value in metrics.items()}
    return {
        "baseline": next(iter(objectives)),
        "seeds": [0],
        "objectives": objectives,
        "summary": {objective: dict(cells) for objective in objectives},
        "runs": [],
    }


def test_a_studys_table_repeats_no_metric_and_compares_like_with_like():
    objectives = {"ce": {}, "del": {"number_loss": "del"}, "emo": {"token_loss": "emo"}}
    metrics = {"log_mae": 0.3, "answer_log_mae": 0.3, "token_loss": 1.5, "digit_logit": 30.0}
    table = study_table(study_results(metrics, objectives))
    assert "log-MAE of the answer" not in table and "log-MAE, teacher-forced, lower is better" in table
    assert "mean digit logit |" in table.replace("  ", " ")  # neither more nor less is better
    of_token_loss = table.partition("token loss, lower is better")[2].partition("\n\n")[0]
    assert "del" in of_token_loss and "emo" not in of_token_loss
    two = study_results(metrics | {"answer_log_mae": 0.2}, objectives)
    assert "log-MAE of the answer" in study_table(two)


def test_a_study_over_one_number_is_drawn_as_a_sweep(tmp_path):
    rates = (5e-4, 1e-3, 2e-3)
    cell = {"mean": 0.5, "sd": None, "n": 1, "difference": None}
    results = {
        "baseline": "lr_1",
        "seeds": [0],
        "objectives": {f"lr_{i}": {"learning_rate": rate} for i, rate in enumerate(rates)},
        "summary": {f"lr_{i}": {"digit_accuracy": cell} for i in range(2)},  # the third is not finished
        "runs": [],
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert {path.name for path in report(tmp_path)} == {"results.md", "sweep.png"}


def test_an_evaluation_gets_table_and_plots(tmp_path):
    from numsft.evaluation.scores import scores

    rows = [
        {"benchmark": "gsm8k", "index": i, "gold": str(10 + i), "extracted": str(10 + i % 3)}
        | {"correct": i < 3, "answered": True, "used_cot": False}
        for i in range(6)
    ]
    (tmp_path / "scores.json").write_text(json.dumps(scores(rows, "strict", resamples=50)))
    written = report(tmp_path)
    assert {path.name for path in written} >= {"scores.md", "accuracy.png", "places.png"}
    assert "50.0" in (tmp_path / "scores.md").read_text()
