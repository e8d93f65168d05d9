from fake_rows import choice_rows, open_rows
from test_nupa_summary import ROWS as NUPA_ROWS

from numsft.evaluation.entropy import EntropySums
from numsft.evaluation.scores import scores
from numsft.evaluation.table import markdown, scores_table


def test_the_report_holds_every_benchmark_place_entropy_and_number_task():
    rows = open_rows("gsm8k", 80, 0.5) + choice_rows("sat_math", 40, 0.3) + NUPA_ROWS
    result = scores(
        rows,
        "strict",
        isolation="partial",
        entropies={"gsm8k": {"teacher_forced": EntropySums(10, 20, 9.9, 32.8, 5.0, 9.0)}},
        resamples=100,
    )
    table = scores_table(result)
    gsm8k = result["benchmarks"]["gsm8k"]
    line = next(line for line in table.splitlines() if line.startswith("| GSM8K"))
    low, high = gsm8k["accuracy_ci95"]
    assert f"{gsm8k['accuracy']:.1%} ({100 * low:.1f}–{100 * high:.1f})" in line
    assert f"{gsm8k['log_mae']['ln_eps']:.3f}" in line
    assert f"{gsm8k['places']['4']['mae']:.2f} ({gsm8k['places']['4']['n']})" in table
    assert "Sandbox isolation: partial" in table and "the mean of GSM8K, SAT-Math" in table
    assert "0.990 (10)" in table and "1.640 (20)" in table and "teacher-forced" in table
    assert "| integer_add" in table and "nan" not in table.lower() and "None" not in table


def test_every_row_of_a_table_has_the_same_width():
    lines = markdown(["name", "a"], [["x", "1.5"], ["longer name", "–"]]).splitlines()
    assert lines == [
        "| name        |   a |",
        "|-------------|----:|",
        "| x           | 1.5 |",
        "| longer name |   – |",
    ]
