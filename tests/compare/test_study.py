"""Studies: the file, the runs that are missing, what is collected, and the statistics."""

import json
import math
import statistics
import subprocess
import sys

import pytest
from scipy import stats

from numsft.compare import collect, load_study, run_missing
from numsft.compare.__main__ import main
from numsft.compare.runs import DONE, runs_of
from numsft.compare.statistics import falls, paired, summarise
from numsft.errors import RunError, UserError
from numsft.recipes import load_recipe, recipe_values

STUDY = """\
base: base.yaml
overrides: {max_steps: 3, learning_rate: 1e-3}
objectives:
  ce: {number_loss: none}
  del-detached: {number_loss: del, number_loss_kwargs: {detach_weight: true}}
seeds: [0, 1]
baseline: ce
"""
BASE = "model_name_or_path: m\ndataset: nupa\nnumber_loss: ntl_was\nnumber_loss_weight: 0.5\n"


@pytest.fixture
def study(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "study.yaml").write_text(STUDY)
    return load_study(tmp_path / "study.yaml")


def finish(run, digit_accuracy, right=(True, False), copies=5):
    """Leave what a finished run leaves."""
    run.folder.mkdir(parents=True)
    log = [
        {"step": 1, "loss": 2.0, "digit_accuracy": 0.1},
        {"step": 2, "eval_digit_accuracy": digit_accuracy - 0.1, "eval_runtime": 9.0, "eval_num_tokens": 3},
        {"step": 3, "eval_digit_accuracy": digit_accuracy, "eval_log_mae": 1 - digit_accuracy},
        {"step": 3, "train_runtime": 12.5},
    ]
    (run.folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    items = [
        {"gold": "12", "after": "12" if ok else "\u202813", "first": True, "correct": ok, "before": "?"}
        for ok in right * copies
    ]
    lines = [json.dumps(item, ensure_ascii=False) for item in items]
    (run.folder / "held_out.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (run.folder / DONE).touch()


def test_a_run_is_its_base_with_the_overrides_in_order(study, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(study.recipe("del-detached", 1, tmp_path / "out"))
    recipe = load_recipe(path)
    assert recipe.training.number_loss == "del"
    assert recipe.training.number_loss_kwargs == {"detach_weight": True}
    assert recipe.training.number_loss_weight is None  # that of the base belonged to another loss
    assert (recipe.training.max_steps, recipe.training.learning_rate, recipe.training.seed) == (3, 1e-3, 1)


def test_keys_on_the_command_line_win_in_every_run_and_leave_only_their_names(study, tmp_path):
    given = load_study(study.path, ["--max_steps", "7", "--dataset=here.jsonl"])
    path = tmp_path / "run.yaml"
    path.write_text(given.recipe("del-detached", 0, tmp_path / "out"))
    recipe = load_recipe(path)
    assert (recipe.training.max_steps, recipe.data.dataset) == (7, "here.jsonl")
    finish(runs_of(given, tmp_path)[0], 0.5)
    results = collect(given, tmp_path)
    assert results["given"] == ["dataset", "max_steps"]
    assert "here.jsonl" not in json.dumps(results)


def test_a_key_that_no_recipe_has_is_refused_on_the_command_line(study, capsys):
    assert main([str(study.path), "--max_step", "7"]) == 2
    assert "max_steps" in capsys.readouterr().err
    assert main([str(study.path), "--seed", "7"]) == 2
    assert "the command line sets seed, which the study sets" in capsys.readouterr().err


def test_all_objectives_of_a_seed_come_before_the_next_seed(study, tmp_path):
    runs = runs_of(study, tmp_path)
    assert [(run.objective, run.seed) for run in runs] == [
        ("ce", 0),
        ("del-detached", 0),
        ("ce", 1),
        ("del-detached", 1),
    ]
    assert runs[1].folder == tmp_path / "runs" / "del-detached" / "seed-0"


@pytest.mark.parametrize(
    "change, message",
    [
        (("baseline: ce", "baseline: none"), "baseline is 'none', which is none of ce, del-detached"),
        (("seeds:", "seed:"), "seed is no key of a study; did you mean seeds?"),
        (("[0, 1]", "[0, 0]"), "a list of different numbers"),
        (("[0, 1]", "[a]"), "a list of different numbers"),
        (("base.yaml", "nowhere.yaml"), "nowhere.yaml does not exist"),
        (("{number_loss: none}", "{seed: 3}"), "objectives.ce sets seed, which the study sets"),
        (("{number_loss: none}", "5"), "objectives.ce is 5"),
        (("  ce:", "  c/e:"), "becomes a folder's name"),
    ],
)
def test_a_study_that_cannot_be_used_is_one_sentence(study, tmp_path, change, message, capsys):
    (tmp_path / "study.yaml").write_text(STUDY.replace(*change))
    assert main([str(tmp_path / "study.yaml")]) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.count("\n") == 1


def test_only_missing_runs_are_run_and_an_interrupted_one_goes_on(study, tmp_path, monkeypatch):
    runs = runs_of(study, tmp_path)
    finish(runs[0], 0.5)
    (runs[1].folder / "checkpoint-2").mkdir(parents=True)
    started = []

    def popen(command, **settings):
        started.append(command[3:])
        return subprocess_popen([sys.executable, "-c", "pass"], **settings)

    subprocess_popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", popen)
    assert run_missing(study, tmp_path, jobs=2) == 3
    resume = ["--resume_from_checkpoint", "true"]
    assert started == [[str(runs[1].recipe), *resume], [str(runs[2].recipe)], [str(runs[3].recipe)]]
    assert run_missing(study, tmp_path) == 0


def test_a_failed_run_is_named_after_the_others_are_done(study, tmp_path, monkeypatch):
    popen = subprocess.Popen

    def failing(command, **settings):
        code = 1 if "del-detached/seed-0" in command[3] else 0
        return popen([sys.executable, "-c", f"raise SystemExit({code})"], **settings)

    monkeypatch.setattr(subprocess, "Popen", failing)
    with pytest.raises(RunError, match=r"1 of 4 runs failed, the first del-detached \(seed 0\)"):
        run_missing(study, tmp_path)
    assert [run.finished for run in runs_of(study, tmp_path)] == [True, False, True, True]


def test_runs_of_other_settings_are_never_taken_for_this_study(study, tmp_path, monkeypatch):
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda *args, popen=subprocess.Popen, **kw: popen([sys.executable, "-c", ""], **kw),
    )
    run_missing(study, tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY.replace("max_steps: 3", "max_steps: 4"))
    with pytest.raises(UserError, match="was made with other settings"):
        run_missing(load_study(tmp_path / "study.yaml"), tmp_path)


def test_results_hold_the_last_evaluation_the_curves_and_the_generated_items(study, tmp_path):
    for run, value in zip(runs_of(study, tmp_path), (0.5, 0.6, 0.4, 0.7), strict=True):
        finish(run, value, right=(True, value > 0.5))
    results = collect(study, tmp_path)
    first = results["runs"][0]
    assert first["metrics"]["digit_accuracy"] == 0.5
    assert first["metrics"]["train_runtime"] == 12.5
    assert "runtime" not in first["metrics"] and "num_tokens" not in first["metrics"]
    assert first["curves"]["digit_accuracy"] == {"step": [2, 3], "value": [0.4, 0.5]}
    assert first["metrics"]["exact_match"] == 0.5
    assert first["metrics"]["generated_log_mae_log10p1"] == pytest.approx(
        (math.log10(14) - math.log10(13)) / 2
    )
    units = first["places"]["0"]
    assert (units["n"], units["mae"]) == (10, 0.5)
    assert units["mae_ci95"][0] < 0.5 < units["mae_ci95"][1]
    assert results["base"] == recipe_values(study.base)
    cell = results["summary"]["del-detached"]["digit_accuracy"]
    assert cell["mean"] == pytest.approx(0.65)
    assert cell["difference"]["mean"] == pytest.approx(0.2)
    assert results["missing"] == []


def test_unfinished_runs_are_listed_and_none_is_an_error(study, tmp_path):
    with pytest.raises(UserError, match="no finished run"):
        collect(study, tmp_path)
    finish(runs_of(study, tmp_path)[0], 0.5)
    results = collect(study, tmp_path)
    assert len(results["missing"]) == 3 and len(results["runs"]) == 1


def test_intervals_are_those_of_the_paired_t_test():
    a, b = [0.52, 0.61, 0.58, 0.49], [0.40, 0.55, 0.50, 0.47]
    found = paired([x - y for x, y in zip(a, b, strict=True)])
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found["ci95"] == pytest.approx([expected.low, expected.high])
    assert paired([0.1])["ci95"] is None


def test_differences_are_paired_by_seed_and_lone_seeds_left_out():
    runs = [
        {"objective": "ce", "seed": seed, "metrics": {"x": value}} for seed, value in ((0, 1.0), (1, 5.0))
    ] + [{"objective": "del", "seed": seed, "metrics": {"x": value}} for seed, value in ((1, 6.0), (2, 9.0))]
    cell = summarise(runs, "ce")["del"]["x"]
    assert (cell["mean"], cell["n"]) == (7.5, 2)
    assert cell["sd"] == pytest.approx(statistics.stdev([6.0, 9.0]))
    assert cell["difference"] == {"mean": 1.0, "ci95": None, "n": 1}
    assert summarise(runs, "ce")["ce"]["x"]["difference"] is None


def test_errors_and_losses_should_fall_and_accuracies_rise():
    assert falls("answer_log_mae") and falls("token_loss") and falls("digit_entropy")
    assert not falls("exact_match") and not falls("digit_accuracy")


def test_collecting_writes_results_table_and_plots(study, tmp_path, capsys):
    for run, value in zip(runs_of(study, tmp_path / "study"), (0.5, 0.6, 0.4, 0.7), strict=True):
        finish(run, value)
    assert main([str(tmp_path / "study.yaml"), "--collect_only"]) == 0
    printed = capsys.readouterr().out
    assert "| digit accuracy (%), higher is better" in printed
    assert "| del-detached" in printed and "+20.0" in printed
    for name in ("results.json", "results.md", "curves.png", "places.png", "difference.png"):
        assert (tmp_path / "study" / name).stat().st_size > 100, name


def test_places_of_a_few_digits_are_not_drawn(study, tmp_path):
    for run in runs_of(study, tmp_path / "study"):
        finish(run, 0.5, copies=2)
    assert main([str(tmp_path / "study.yaml"), "--collect_only"]) == 0
    assert not (tmp_path / "study" / "places.png").exists()
