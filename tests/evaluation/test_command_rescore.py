"""The evaluation command without a model: samples scored again, two runs compared."""

import json
import os
import re

import pytest
from command import GSM8K, SHORT, message_of, read_rows, read_scores

from numsft.evaluation.benchmarks import load_questions

pytestmark = pytest.mark.skipif(not os.environ.get("NUMSFT_DATA_DIR"), reason="NUMSFT_DATA_DIR is not set")
pytest.importorskip("lm_eval")


@pytest.mark.parametrize("mode", ["strict", "paper"])
def test_scoring_again_gives_what_the_run_in_that_mode_gave(evaluate, scripted, tmp_path, mode):
    assert evaluate(*GSM8K, "--mode", mode, output_dir=tmp_path / "run")[0] == 0
    asked = len(scripted.asked)
    other = "paper" if mode == "strict" else "strict"
    samples = tmp_path / "run" / "samples.jsonl"
    for step, source in ((other, samples), (mode, tmp_path / "between" / "samples.jsonl")):
        target = tmp_path / ("between" if step == other else "back")
        status, out, err = evaluate("--rescore", source, "--mode", step, name=None, output_dir=target)
        assert status == 0, err
        assert out == (target / "scores.md").read_text() + "\n"
        assert read_scores(target)["mode"] == step
        assert read_scores(target)["settings"] == {"rescored": "samples.jsonl"}
    assert read_rows(tmp_path / "back") == read_rows(tmp_path / "run")
    back, run = (read_scores(tmp_path / name) for name in ("back", "run"))
    assert back["benchmarks"] == run["benchmarks"]
    assert back["sandbox"] == run["sandbox"]
    assert len(scripted.asked) == asked


def test_scoring_again_in_place_loses_nothing(evaluate, scripted, tmp_path):
    assert evaluate(*GSM8K)[0] == 0
    folder = tmp_path / "out"
    before = {path.name: path.read_bytes() for path in folder.glob("*.js*")}
    asked = len(scripted.asked)
    assert evaluate("--rescore", folder, "--mode", "paper", name=None)[0] == 0
    assert read_scores(folder)["mode"] == "paper"
    assert evaluate(*GSM8K)[0] == 0
    assert {path.name: path.read_bytes() for path in folder.glob("*.js*")} == before
    assert len(scripted.asked) == asked


def test_scoring_again_takes_bare_rows_and_runs_no_program_that_was_run(evaluate, tmp_path, monkeypatch):
    from numsft.evaluation import sandbox

    gold = [question.gold for question in load_questions("gsm8k", limit=3)]
    rows = [
        {"benchmark": "gsm8k", "index": 0, "pot": None, "cot": f"The answer is {gold[0]}"},
        {"benchmark": "gsm8k", "index": 1, "pot": "print(0)", "pot_stdout": f"{gold[1]}\n"},
        {"benchmark": "gsm8k", "index": 2, "pot": "no answer"},
        {"benchmark": "aqua", "index": 7, "cot": "The answer is (A)"},
    ]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(sandbox, "run_programs", lambda *_, **__: pytest.fail("a program was run"))
    status, _, err = evaluate("--rescore", tmp_path / "given.jsonl", name=None)
    assert status == 0
    assert "1 questions have no answer in the first pass and no text of the backup pass" in err
    scored = read_rows(tmp_path / "out")
    assert [row["correct"] for row in scored[:3]] == [True, True, False]
    assert scored[3]["question"] == load_questions("aqua", limit=8)[7].question
    assert read_scores(tmp_path / "out")["sandbox"]["isolation"] is None


def test_a_choice_that_is_a_program_is_run_by_the_papers_rules_and_the_isolation_recorded(evaluate, tmp_path):
    row = {"benchmark": "aqua", "index": 0, "cot": " print('The answer is (C)')"}
    (tmp_path / "given.jsonl").write_text(json.dumps(row) + "\n")
    assert evaluate("--rescore", tmp_path / "given.jsonl", "--mode", "paper", name=None)[0] == 0
    assert read_rows(tmp_path / "out")[0]["extracted"] == "C"
    assert read_scores(tmp_path / "out")["sandbox"]["isolation"] in ("full", "partial")


def test_scoring_again_never_writes_over_the_samples_of_another_run(evaluate, tmp_path):
    assert evaluate(*SHORT)[0] == 0
    (tmp_path / "given.jsonl").write_text('{"benchmark": "svamp", "index": 0, "cot": "The answer is 1"}\n')
    before = (tmp_path / "out" / "samples.jsonl").read_bytes()
    status, _, err = evaluate("--rescore", tmp_path / "given.jsonl", name=None)
    assert status == 2
    assert "holds the samples of another run: name another --output_dir" in message_of(err)
    assert (tmp_path / "out" / "samples.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "lines, message",
    [
        (["{}"], "a row has benchmark None and index None"),
        (["x"], "line 1 of .* is no JSON object"),
        (["[1]"], "line 1 of .* is no JSON object"),
        ([""], "holds no samples"),
        (['{"benchmark": "svamp", "index": 0}'], "neither pot nor cot"),
        (['{"benchmark": "svamp", "index": 99999, "cot": "1"}'], "index 99999; expected 0 to 999"),
        (['{"benchmark": "swamp", "index": 0, "cot": "1"}'], "no benchmark 'swamp'; did you mean svamp"),
        (['{"benchmark": "svamp", "index": 0, "cot": "1"}'] * 2, "has row 0 of svamp 2 times"),
    ],
)
def test_samples_that_cannot_be_scored_are_named(evaluate, tmp_path, lines, message):
    (tmp_path / "given.jsonl").write_text("\n".join(lines) + "\n")
    status, _, err = evaluate("--rescore", tmp_path / "given.jsonl", name=None)
    assert status == 2
    assert re.search(message, message_of(err))
    assert not (tmp_path / "out").exists()


def test_two_runs_are_compared(evaluate, scripted, tmp_path):
    assert evaluate(*GSM8K, output_dir=tmp_path / "a")[0] == 0
    for text in list(scripted.answers):
        scripted.answers[text] = " The answer is -1"
    assert evaluate(*GSM8K, output_dir=tmp_path / "b")[0] == 0
    status, out, err = evaluate(
        "--compare", tmp_path / "a", tmp_path / "b" / "samples.jsonl", name=None, output_dir=tmp_path / "c"
    )
    assert status == 0, err
    assert {path.name for path in (tmp_path / "c").iterdir()} == {"compare.json", "compare.md"}
    entry = json.loads((tmp_path / "c" / "compare.json").read_text())["benchmarks"]["gsm8k"]
    assert entry["n"] == 4
    assert entry["accuracy_difference"] == 0.75
    assert entry["mcnemar"] == {"a_only": 3, "b_only": 0, "p": 0.25}
    assert entry["ci95"][0] <= 0.75 <= entry["ci95"][1]
    assert "gsm8k" in out.lower()


def test_runs_in_two_modes_are_not_compared(evaluate, scripted, tmp_path):
    assert evaluate(*GSM8K, output_dir=tmp_path / "a")[0] == 0
    assert evaluate(*GSM8K, "--mode", "paper", output_dir=tmp_path / "b")[0] == 0
    status, _, err = evaluate("--compare", tmp_path / "a", tmp_path / "b", name=None)
    assert status == 2
    assert "expected one mode: bring one to the other's with --rescore" in message_of(err)
    assert not (tmp_path / "out").exists()
