"""Rows: which text counts, what is run and what is not, what every row carries; prompts of both passes."""

import pytest
from program_runner import Outcome, run_programs

from numsft.data.prompts import ALPACA
from numsft.errors import UserError
from numsft.evaluation.benchmarks import Question
from numsft.evaluation.prompts import max_new_tokens, program_prompt, reasoning_prompt
from numsft.evaluation.scoring import needs_backup, rescore, score_rows

MODES = ("paper", "strict")
QUESTION = Question("gsm8k", 7, "How many eggs?", "18")
CHOICE = Question("sat_math", 3, "Which?\nAnswer Choices: (A) 1 (B) 2 (C) 3 (D) 4", "B", ("1", "2", "3", "4"))


class Recorder:
    """Stands for the sandbox: notes the batches it is given, and says the same of every program."""

    def __init__(self, stdout="18\n", error=None):
        self.outcome, self.batches = Outcome(stdout, error), []

    def __call__(self, programs):
        self.batches.append(list(programs))
        return [self.outcome for _ in programs]


def one(mode, run=run_programs, question=QUESTION, **row):
    return score_rows([question], [row], mode, run)[0]


@pytest.mark.parametrize("mode", MODES)
def test_a_row_carries_all_fields(mode):
    row = one(mode, pot=" x = 18\nprint(x)", extra="kept")
    assert {key: row[key] for key in row if key not in ("question", "extracted_by", "matched_by")} == {
        "benchmark": "gsm8k",
        "index": 7,
        "gold": "18",
        "pot": " x = 18\nprint(x)",
        "cot": None,
        "extra": "kept",
        "mode": mode,
        "pot_stdout": "18\n",
        "pot_rules": mode,
        "pot_ok": True,
        "pot_exec_error": None,
        "used_cot": False,
        "extracted": "18",
        "correct": True,
        "answered": True,
    }
    assert row["extracted_by"] == "program"
    assert row["matched_by"] == {"paper": "string", "strict": "exact"}[mode]


@pytest.mark.parametrize("mode", MODES)
def test_the_backup_is_used_only_where_the_first_pass_gives_no_answer(mode):
    assert one(mode, pot="print(5)", cot="The answer is 18")["used_cot"] is False
    assert one(mode, pot="print('none')", cot="The answer is 18")["correct"] is True
    row = one(mode, pot="1 / 0\nprint(5)", cot="The answer is 18")
    assert (row["used_cot"], row["pot_exec_error"], row["pot_ok"], row["correct"]) == (
        True,
        "ZeroDivisionError",
        False,
        True,
    )
    row = one(mode, cot="The answer is 18")
    assert (row["used_cot"], row["pot_ok"], row["pot_stdout"], row["pot_rules"]) == (True, None, None, None)


@pytest.mark.parametrize("mode", MODES)
def test_which_rows_want_the_backup_pass(mode):
    assert needs_backup(one(mode, pot="print(None)"))
    assert not needs_backup(one(mode, pot="print(5)"))
    assert not needs_backup(one(mode, pot="print(None)", cot="I give up."))
    assert not needs_backup(one(mode, question=CHOICE, cot="No idea."))


def test_code_that_never_prints_is_the_paper_s_answer_and_no_strict_one():
    text = "eggs = 16\nleft = eggs - 7\nreturn left * 2"
    assert [one(mode, pot=text)["extracted"] for mode in MODES] == ["2", ""]


@pytest.mark.parametrize("mode", MODES)
def test_all_programs_of_a_pass_are_run_in_one_batch(mode):
    recorder = Recorder()
    rows = [{"pot": "print(18)"}, {"pot": "The answer is 18"}, {"pot": "print(9 * 2)"}]
    scored = score_rows([QUESTION] * 3, rows, mode, recorder)
    assert [len(batch) for batch in recorder.batches] == [2]
    assert [row["correct"] for row in scored] == [True, True, True]


@pytest.mark.parametrize("mode", MODES)
def test_stored_output_of_the_same_rules_is_not_run_again(mode):
    other = {"paper": "strict", "strict": "paper"}[mode]
    recorder = Recorder("5\n")
    for rules, runs in ((None, 0), (mode, 0), (other, 1)):
        recorder.batches.clear()
        row = {"pot": "print(18)", "pot_stdout": "18\n", "pot_exec_error": None}
        row = score_rows([QUESTION], [row | ({"pot_rules": rules} if rules else {})], mode, recorder)[0]
        assert len(recorder.batches) == runs
        assert (row["extracted"], row["pot_rules"]) == ("5" if runs else "18", mode)


def test_stored_output_with_an_error_is_lost_to_the_paper_only():
    row = {"pot": "print(18)\n1/0", "pot_stdout": "18\n", "pot_exec_error": "ZeroDivisionError"}
    assert [score_rows([QUESTION], [row], mode, None)[0]["extracted"] for mode in MODES] == ["", "18"]


def test_one_set_of_generations_is_scored_under_both_rules_and_back():
    rows = [
        {
            "benchmark": "gsm8k",
            "index": 0,
            "question": "?",
            "gold": "2",
            "pot": " from math import *\nprint(sqrt(4))",
            "cot": "The answer is 3",
        }
    ]
    strict = rescore(rows, "strict", run_programs=run_programs)
    paper = rescore(strict, "paper", run_programs=run_programs)
    again = rescore(paper, "strict", run_programs=run_programs)
    assert (strict[0]["extracted"], paper[0]["extracted"]) == ("2", "3")
    assert again == strict
    assert rescore(strict, "strict", run_programs=None) == strict


@pytest.mark.parametrize("mode", MODES)
def test_a_backup_text_that_is_a_program_is_run_too(mode):
    row = one(mode, pot="print(None)", cot="print(9 * 2)")
    assert (row["extracted"], row["cot_stdout"], row["pot_stdout"]) == ("18", "18\n", "None\n")


def test_a_stated_answer_comes_before_a_program_in_a_strict_backup_text():
    recorder = Recorder()
    row = one("strict", recorder, pot="The", cot="```python\nprint(9)\n```\nThe answer is 18.")
    assert (row["extracted"], recorder.batches) == ("18", [])


def test_multiple_choice_runs_programs_for_the_paper_only():
    recorder = Recorder("B\n")
    assert one("paper", recorder, CHOICE, cot="print('B')")["extracted"] == "B"
    assert len(recorder.batches) == 1
    assert one("strict", recorder, CHOICE, cot="print('B')")["extracted"] == ""
    assert len(recorder.batches) == 1


def test_options_of_a_row_with_its_own_question_are_counted_from_it():
    row = {"benchmark": "sat_math", "index": 3, "question": CHOICE.question, "gold": "B"}
    scored = rescore([row | {"cot": "The answer is (E)"}, row | {"cot": "The answer is (B)"}], "strict")
    assert [answer["extracted"] for answer in scored] == ["", "B"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "has neither pot nor cot"),
        ({"pot": "print(1)"}, "1 rows hold programs"),
        ({"cot": "5", "benchmark": 3}, "benchmark 3"),
    ],
)
def test_rows_that_cannot_be_scored_are_refused_in_one_sentence(row, message):
    row = {"benchmark": "gsm8k", "index": 0, "question": "?", "gold": "1"} | row
    with pytest.raises(UserError, match=message) as error:
        rescore([row], "strict")
    assert "\n" not in str(error.value)


def test_an_unknown_mode_is_refused():
    with pytest.raises(UserError, match="'lenient'; expected strict or paper"):
        score_rows([], [], "lenient", None)


def test_prompts_are_the_training_template_s():
    assert program_prompt(QUESTION) == ALPACA.format(prompt="How many eggs? Let's write a program.")
    assert reasoning_prompt(QUESTION) == ALPACA.format(prompt="How many eggs?")
    assert reasoning_prompt(CHOICE).endswith(
        "(D) 4\n\n### Response: Let's solve the multi-choice question step by step.\n"
    )
    assert reasoning_prompt(QUESTION).endswith("\n\n### Response:")
    assert (max_new_tokens("gsm8k"), max_new_tokens("math"), max_new_tokens("aqua")) == (1500, 1500, 2048)
