import pytest
from fake_rows import choice_rows, open_rows, scored_row

from numsft.errors import UserError
from numsft.evaluation.compare import compare
from numsft.evaluation.table import compare_table

FEW = 400


def rows_of(right, benchmark="gsm8k", wrong="20"):
    return [scored_row(benchmark, i, "10", "10" if ok else wrong, bool(ok)) for i, ok in enumerate(right)]


def test_difference_and_mcnemar_by_hand():
    a, b = rows_of([1] * 10 + [0, 0, 1, 0]), rows_of([0] * 10 + [1, 1, 1, 0])
    entry = compare(a, b, resamples=FEW)["benchmarks"]["gsm8k"]
    assert (entry["n"], entry["accuracy_a"], entry["accuracy_b"]) == (14, 11 / 14, 3 / 14)
    assert entry["accuracy_difference"] == pytest.approx(8 / 14)
    assert entry["mcnemar"] == {"a_only": 10, "b_only": 2, "p": pytest.approx(0.03857421875)}
    low, high = entry["ci95"]
    assert low < 8 / 14 < high
    assert entry["log_mae"]["n"] == 14
    assert entry["log_mae"]["difference"] == pytest.approx(-8 / 14 * 0.693147, abs=1e-6)


def test_swapping_the_models_turns_every_sign():
    a, b = open_rows("gsm8k", 120, 0.6), open_rows("gsm8k", 120, 0.4)
    one, other = (compare(*pair, resamples=FEW)["benchmarks"]["gsm8k"] for pair in ((a, b), (b, a)))
    assert one["accuracy_difference"] == -other["accuracy_difference"] > 0
    assert one["ci95"] == pytest.approx([-other["ci95"][1], -other["ci95"][0]])
    assert one["mcnemar"]["p"] == other["mcnemar"]["p"] < 0.05
    assert one["log_mae"]["difference"] == pytest.approx(-other["log_mae"]["difference"])


def test_a_model_against_itself_differs_by_nothing():
    rows = open_rows("gsm8k", 50, 0.5) + choice_rows("aqua", 30, 0.5)
    for entry in compare(rows, rows, resamples=FEW)["benchmarks"].values():
        assert entry["accuracy_difference"] == 0 and entry["ci95"] == [0, 0] and entry["mcnemar"]["p"] == 1


def test_questions_are_matched_by_benchmark_and_index():
    a = rows_of([1, 0, 1, 1]) + rows_of([1, 1], "svamp")
    b = rows_of([0, 1, 1])[::-1] + rows_of([1], "simuleq")
    result = compare(a, b, resamples=FEW)
    assert list(result["benchmarks"]) == ["gsm8k"]
    entry = result["benchmarks"]["gsm8k"]
    assert (entry["mcnemar"]["a_only"], entry["mcnemar"]["b_only"]) == (1, 1)
    assert (entry["n"], entry["unmatched"]) == (3, {"a": 1, "b": 0})


def test_letters_have_no_log_mae_difference():
    entry = compare(choice_rows("aqua", 20, 0.5), choice_rows("aqua", 20, 0.2), resamples=FEW)
    assert entry["benchmarks"]["aqua"]["log_mae"] == {"n": 0, "difference": None, "ci95": None}
    assert "–" in compare_table(entry).splitlines()[2]


def test_different_modes_and_data_are_refused():
    a, b = rows_of([1, 0]), rows_of([0, 1])
    with pytest.raises(UserError, match="A was scored in strict mode and B in paper mode"):
        compare(a, b, a_mode="strict", b_mode="paper")
    with pytest.raises(UserError, match="paper mode"):
        compare(a, [{**row, "pot_rules": "paper"} for row in b], a_mode="strict")
    with pytest.raises(UserError, match="different questions in gsm8k row 1"):
        compare(a, [b[0], {**b[1], "question": "another"}])
    with pytest.raises(UserError, match="different golds in gsm8k row 0"):
        compare(a, [{**b[0], "gold": "11"}, b[1]])
    with pytest.raises(UserError, match="share no question"):
        compare(a, rows_of([1], "svamp"))


def test_table_names_the_models_and_shows_the_test():
    table = compare_table(compare(rows_of([1] * 6), rows_of([0] * 6), resamples=FEW), "del", "ce")
    assert "del − ce (95 %)" in table and "+100.0 (+100.0 to +100.0)" in table
    assert "0.031" in table and "-0.693" in table
