import pytest

from numsft.errors import UserError
from numsft.evaluation.nupa import TASKS, generate
from numsft.evaluation.nupa.summary import longest, nupa_scores
from numsft.evaluation.scores import scores


def nupa_row(index, task, length, range_, gold, extracted):
    return {
        "benchmark": "nupa",
        "index": index,
        "representation": "Integer",
        "task": task,
        "length": length,
        "range": range_,
        "gold": gold,
        "extracted": extracted,
        "correct": gold == extracted,
    }


ROWS = [
    nupa_row(0, "add", 3, "S", "120", "120"),
    nupa_row(1, "add", 3, "S", "555", "555"),
    nupa_row(2, "add", 5, "M", "12345", "12645"),
    nupa_row(3, "add", 5, "M", "12345", "12345"),
    nupa_row(4, "add", 9, "L", "123456789", "6789"),
    nupa_row(5, "mod", 3, "S", "7", ""),
]


def test_metrics_by_hand():
    entry = nupa_scores(ROWS, resamples=100)
    assert (entry["n"], entry["accuracy"], entry["exact_match"]) == (6, 0.5, 0.5)
    assert entry["answered"] == pytest.approx(5 / 6)
    add = entry["tasks"]["integer_add"]
    assert add["n"] == 5 and add["exact_match"] == 0.6
    assert add["digit_match"] == pytest.approx((1 + 1 + 4 / 5 + 1 + 4 / 9) / 5)
    assert add["dlength"] == 1
    assert add["ranges"]["M"] == {"n": 2, "exact_match": 0.5, "digit_match": 0.9, "dlength": 0}
    assert list(add["lengths"]) == ["3", "5", "9"]
    assert (add["well_learned_length"], add["performance_preserving_length"]) == (3, 5)
    mod = entry["tasks"]["integer_mod"]
    assert (mod["digit_match"], mod["dlength"], mod["well_learned_length"]) == (0, 1, 0)
    assert list(entry["ranges"]) == ["S", "M", "L"]
    assert entry["ranges"]["S"]["n"] == 3 and entry["representations"]["Integer"]["n"] == 6


def test_longest_length_need_not_follow_shorter_ones():
    assert longest({3: 0.95, 4: 0.5, 5: 0.9, 6: 0.1}, 0.9) == 5
    assert longest({3: 0.2}, 0.9) == 0


def test_gold_answers_of_every_task_score_full_marks():
    rows = [
        {**row, "benchmark": "nupa", "index": i, "gold": row["answer"], "extracted": row["answer"], "correct": True}
        for i, row in enumerate(generate(list(TASKS), [3, 6], 164, split="test"))
    ]
    result = scores(rows, "strict", resamples=100)
    entry = result["benchmarks"]["nupa"]
    assert set(entry["tasks"]) == set(TASKS)
    assert (entry["exact_match"], entry["digit_match"], entry["dlength"]) == (1, 1, 0)
    assert result["macc"] is None


def test_a_row_without_its_task_is_refused():
    with pytest.raises(UserError, match="'task'"):
        nupa_scores([{key: value for key, value in ROWS[0].items() if key != "task"}])
