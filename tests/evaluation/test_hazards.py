"""The numbered hazards of the published evaluation: `paper` gives its result, `strict` the right one."""

import ast
import os
from pathlib import Path

import pytest
from program_runner import run_programs

import numsft.evaluation
from numsft.evaluation.benchmarks import Question, gold_number, kind_of
from numsft.evaluation.numbers import parse_number
from numsft.evaluation.prompts import cut_at_stops, stop_strings
from numsft.evaluation.scoring import score_rows

FIVE = "Which?\nAnswer Choices: (A) 1 (B) 2 (C) 3 (D) 4 (E) 5"


def scored(mode, gold="18", benchmark="gsm8k", question="How many?", solutions=(), **row):
    number = gold_number(gold) if kind_of(benchmark) == "math" else None
    asked = Question(benchmark, 0, question, gold, solutions=solutions, gold_number=number)
    return score_rows([asked], [row], mode, run_programs)[0]


def both(**row):
    return scored("paper", **row), scored("strict", **row)


def extracted(**row):
    return tuple(answer["extracted"] for answer in both(**row))


# 1. What the wrapper function breaks


def test_1_a_star_import_is_a_syntax_error_for_the_paper_and_runs_for_strict():
    paper, strict = both(gold="2", pot=" from math import *\nprint(int(sqrt(4)))", cot="The answer is 7")
    assert (paper["pot_exec_error"], paper["pot_ok"], paper["used_cot"], paper["extracted"]) == (
        "SyntaxError",
        False,
        True,
        "7",
    )
    assert (strict["pot_exec_error"], strict["pot_ok"], strict["used_cot"], strict["extracted"]) == (
        None,
        True,
        False,
        "2",
    )


@pytest.mark.parametrize(
    "program",
    [
        "```python\nx = 18\nprint(x)\n```",
        "```\nx = 18\nprint(x)\n```\nThe program prints the result.",
        "x = 18\nprint(x)\n\nThis program prints the result.",
        "Here is a program.\n\nx = 18\nprint(x)",
        "Let us write it:\n```python\nx = 18\n```\nand then\n```python\nprint(x)\n```\n",
    ],
)
def test_1_fences_and_prose_break_the_paper_s_program_and_not_the_strict_one(program):
    paper, strict = both(pot=program)
    assert (paper["extracted"], paper["pot_exec_error"], paper["answered"]) == ("", "SyntaxError", False)
    assert (strict["extracted"], strict["correct"], strict["extracted_by"]) == ("18", True, "program")


def test_1_the_wrapper_s_indentation_gets_into_strings():
    assert extracted(pot='text = """a\nb"""\nprint(len(text))') == ("5", "3")


def test_1_a_guarded_main_function_does_not_run_in_the_paper_s_executor():
    program = 'def main():\n    print(18)\n\nif __name__ == "__main__":\n    main()'
    assert extracted(pot=program) == ("", "18")


# 2. Output before an error


@pytest.mark.parametrize(
    "end", ["raise ValueError('no')", "exit()", "import sys; sys.exit(1)", "import os; os._exit(0)"]
)
def test_2_the_paper_loses_what_was_printed_before_the_end(end):
    program = f"print(18, flush=True)\n{end}"
    assert extracted(pot=program) == ("", "18")


def test_2_the_class_of_the_error_is_recorded():
    paper, strict = both(pot="print(18, flush=True)\nprint(1 / 0)")
    assert paper["pot_exec_error"] == strict["pot_exec_error"] == "ZeroDivisionError"
    assert (paper["pot_ok"], strict["pot_ok"]) == (False, False)


def test_2_a_program_without_end_is_a_time_out(monkeypatch):
    class Late:
        stdout, error = "", "timeout"

    row = {"pot": "while True:\n    print(1)"}
    for mode in ("paper", "strict"):
        answer = score_rows([Question("gsm8k", 0, "?", "1")], [row], mode, lambda programs: [Late()])[0]
        assert (answer["pot_exec_error"], answer["extracted"], answer["answered"]) == ("timeout", "", False)


# 3. Numbers in text and in output


@pytest.mark.parametrize(
    ("text", "paper", "strict"),
    [
        (".5", "5", "0.5"),
        ("1e-5", "1", "0.00001"),
        ("1.0e3", "1", "1000"),
        ("25%", "25", "25%"),
        ("10:30", "10", ""),
        ("3/4/5", "0.75", ""),
        ("5-7", "5", ""),
        ("2**10", "2", "1024"),
        ("1/3", "0.3333333333333333", "1/3"),
        ("−5", "5", "-5"),
        ("-$5", "5", "-5"),
        ("1 1/2", "1", "1.5"),
        ("5/", "5", "5"),
        ("1/0", "1/0", ""),
    ],
)
def test_3_how_each_reads_a_number(text, paper, strict):
    assert extracted(cot=f"The answer is {text}") == (paper, strict)


@pytest.mark.parametrize(
    ("expression", "paper", "strict"),
    [
        ("10**20", "100.0", "100000000000000000000"),
        ("0.1 + 0.2", "0.30000000000000004", "0.30000000000000004"),
        ("1 / 3", "0.3333333333333333", "0.3333333333333333"),
        ("5.0", "5", "5"),
        ("1e-7", "1", "0.0000001"),
        ("10.50", "10.5", "10.5"),
    ],
)
def test_3_how_each_reads_what_a_program_prints(expression, paper, strict):
    assert extracted(pot=f"print({expression})") == (paper, strict)


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("18", "18.000000000000004"),
        ("18", "17.9999999999"),
        ("583.3333", "583.3333333333334"),
        ("0.3", "0.30000000000000004"),
        ("0.6667", "2/3"),
        ("0.5", ".5"),
        ("0.00001", "1e-5"),
        ("-5", "−5"),
        ("1.5", "1 1/2"),
        ("1024", "2**10"),
        ("100000000000000000000", "100000000000000000000"),
    ],
)
def test_3_a_right_number_that_the_paper_counts_as_wrong(gold, text):
    paper, strict = both(gold=gold, cot=f"The answer is {text}")
    assert (paper["correct"], strict["correct"]) == (False, True)


@pytest.mark.parametrize(
    ("gold", "text"), [("18", "18.1"), ("18", "17"), ("583.3333", "583.34"), ("0.5", "0.504")]
)
def test_3_a_wrong_number_is_wrong_for_strict(gold, text):
    assert not scored("strict", gold=gold, cot=f"The answer is {text}")["correct"]


def test_3_percent_is_dropped_by_the_paper_and_a_unit_for_strict():
    asked = {"question": "What percent of the apples are red?", "cot": "The answer is 25%"}
    counted = {"question": "How many apples are red?", "cot": "The answer is 25%"}
    assert [answer["correct"] for answer in both(gold="25", **asked)] == [True, True]
    assert [answer["correct"] for answer in both(gold="25", **counted)] == [True, False]
    assert [answer["correct"] for answer in both(gold="0.25", **counted)] == [False, True]
    assert scored("strict", gold="25", **asked)["matched_by"] == "percent:exact"


# 4. The model's text is never evaluated in our process


@pytest.mark.parametrize("benchmark", ["gsm8k", "math", "aqua"])
@pytest.mark.parametrize("mode", ["paper", "strict"])
def test_4_text_with_code_in_it_runs_nothing(benchmark, mode, tmp_path):
    trace = tmp_path / "trace"
    code = f"__import__('pathlib').Path({str(trace)!r}).touch()"
    gold = "A" if benchmark == "aqua" else "1"
    for text in (f"The answer is {code}/1", f"\\boxed{{{code}}}", f"The answer is [{code}]", code):
        row = {"cot": text}
        answer = score_rows(
            [Question(benchmark, 0, FIVE, gold, gold_number=1)], [row], mode, run_programs=None
        )[0]
        assert answer["extracted"] is not None
    assert not trace.exists()


def test_4_an_answer_that_would_never_end_is_read_at_once():
    for mode in ("paper", "strict"):
        answer = scored(mode, benchmark="math", gold="1", cot="\\boxed{9**9**9**9}")
        assert not answer["correct"]


def test_4_no_module_of_the_evaluation_calls_eval_or_exec():
    folder = Path(numsft.evaluation.__file__).parent
    names = [
        "arithmetic",
        "benchmarks",
        "choices",
        "math_text",
        "numbers",
        "paper",
        "paper_math",
        "paper_scoring",
        "programs",
        "scoring",
        "strict",
        "strict_scoring",
    ]
    for name in names:
        tree = ast.parse((folder / f"{name}.py").read_text())
        called = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        imported = {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }
        assert not called & {"eval", "exec", "compile", "__import__"}, name
        assert not imported & {"sympy", "latex2sympy2", "subprocess"}, name


# 5. Triggers


@pytest.mark.parametrize(
    ("text", "paper", "strict"),
    [
        ("The final answer is 5 apples out of 10", "10", "5"),
        ("THE ANSWER IS 5. That took 10 minutes.", "10", "5"),
        ("Final answer: 5 (checked 3 times)", "3", "5"),
        ("The answer is 3 + 4 = 7.", "3", "7"),
        ("The answer is 7. But 8 is wrong.", "7", "7"),
        ("The answer is 5. Wait. The answer is 7.", "7", "7"),
        ("So \\boxed{5}, found in 3 steps", "3", "5"),
    ],
)
def test_5_triggers(text, paper, strict):
    assert extracted(cot=text) == (paper, strict)


def test_5_a_second_question_of_the_model_s_own_is_not_its_answer():
    text = "The answer is 18.\n\n### Instruction:\nHow many?\n\n### Response: The answer is 5."
    assert extracted(cot=text) == ("18", "18")
    assert extracted(cot=text.replace("\n\n", "\n")) == ("5", "18")


# 6. MATH


@pytest.mark.parametrize(
    ("gold", "answer", "paper"),
    [
        ("5", "5.0", "numeric_gold"),
        ("\\frac{1}{2}", "0.5", "numeric_gold"),
        ("0.5", "\\frac{1}{2}", "numeric_gold"),
        ("\\dfrac{1}{2}", "\\frac12", "string"),
        ("(B)", "\\text{(B)}", "string"),
    ],
)
def test_6_equal_values_match_in_both(gold, answer, paper):
    rows = both(benchmark="math", gold=gold, cot=f"\\boxed{{{answer}}}")
    assert rows[0]["matched_by"] == paper
    assert rows[1]["correct"]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("2", "2.4"),
        ("0", "0.4"),
        ("0", "0.5"),
        ("2", "2.5"),
        ("3.2", "3.14"),
        ("\\frac{1}{3}", "0.33"),
        ("50", "50.3"),
    ],
)
def test_6_wrong_values_that_the_paper_lets_pass(gold, answer):
    paper, strict = both(benchmark="math", gold=gold, cot=f"\\boxed{{{answer}}}")
    assert (paper["correct"], strict["correct"]) == (True, False)


def test_6_a_half_is_rounded_to_even_by_the_paper():
    assert not scored("paper", benchmark="math", gold="3", cot="\\boxed{2.5}")["correct"]
    assert scored("paper", benchmark="math", gold="4", cot="\\boxed{3.5}")["correct"]


def test_6_the_tolerance_is_for_golds_with_a_number_only():
    assert scored("paper", benchmark="math", gold="3.2", cot="The answer is 3.14")["correct"]
    assert not scored("paper", benchmark="simuleq", gold="3.2", cot="The answer is 3.14")["correct"]


# 7. Multiple choice


@pytest.mark.parametrize(
    ("text", "paper", "strict"),
    [
        ("A train leaves. Hence 5", "A", ""),
        ("I do not know", "I", ""),
        ("No idea.", "A", ""),
        ("The answer is a number.", "A", ""),
        ("The answer is (F)", "F", ""),
        ("The answer is (B).", "B", "B"),
        ("The answer is B.", "B", "B"),
        ("the correct option is D", "D", "D"),
        ("a + b = 3, so I choose option C", "C", "C"),
        ("So it must be E", "E", "E"),
        ("Answer: C) 3", "C", "C"),
        ("A number I like: \\boxed{C}", "C", "C"),
        ("(A) is wrong, (B) too.", "B", ""),
        ("P(A) = 0.3", "A", ""),
    ],
)
def test_7_letters(text, paper, strict):
    rows = both(benchmark="aqua", gold="B", question=FIVE, cot=text)
    assert (rows[0]["extracted"], rows[1]["extracted"]) == (paper, strict)
    assert rows[1]["answered"] == bool(strict)
    assert rows[1]["correct"] == (strict == "B")


def test_7_the_default_is_recorded_as_no_answer():
    paper, strict = both(benchmark="aqua", gold="A", question=FIVE, cot="No idea.")
    assert (paper["extracted"], paper["extracted_by"], paper["answered"], paper["correct"]) == (
        "A",
        "default_option",
        False,
        True,
    )
    assert (strict["extracted"], strict["answered"], strict["correct"]) == ("", False, False)


# 8. Stop strings


def test_8_the_paper_stops_at_the_trigger_and_strict_does_not():
    assert "####" in stop_strings("paper")
    assert not {"####", "Response:", "Problem:"} & set(stop_strings("strict"))
    assert cut_at_stops("9 * 2 = 18\n#### 5") == "9 * 2 = 18\n"


def test_8_a_text_generated_for_strict_is_cut_before_the_paper_s_rules_read_it():
    row = {"cot": "2 + 3 makes it.\n#### 18", "stop_rules": "strict"}
    paper, strict = both(**row)
    assert (paper["extracted"], strict["extracted"]) == ("3", "18")
    assert paper["cot"] == row["cot"]


# 9. Order


def test_9_rows_stay_in_the_order_of_the_questions():
    questions = [Question("gsm8k", i, "?", str(i)) for i in range(6)]
    rows = [{"pot": f"print({i})" if i % 2 else "1 / 0", "cot": f"The answer is {i}"} for i in range(6)]
    for mode in ("paper", "strict"):
        answers = score_rows(questions, rows, mode, run_programs)
        assert [answer["index"] for answer in answers] == list(range(6))


# 10. The log-MAE that is never printed: rows carry what it needs


def test_10_extracted_and_gold_are_exact_text_that_metrics_can_read():
    answer = scored("strict", gold="583.3333", pot="print(1750 / 3)")
    assert parse_number(answer["extracted"]).decimals == 13
    assert parse_number(answer["gold"]).value * 10000 == 5833333


# 11. Systems of equations


@pytest.mark.parametrize("printed", ["15 9", "9 15", "x = 15, y = 9", "x = 9, y = 15", "(9, 15)"])
def test_11_a_system_is_scored_on_its_first_number_and_on_any(printed):
    paper, strict = both(benchmark="simuleq", gold="15", pot=f"print({printed!r})")
    first = printed.index("15") < printed.index("9")
    assert (paper["correct"], strict["correct"], strict["correct_any"]) == (first, first, True)
    assert "correct_any" not in paper


def test_11_another_solution_that_is_known_counts_for_any():
    row = scored("strict", benchmark="simuleq", gold="15", solutions=("15", "9"), cot="The answer is 9")
    assert (row["correct"], row["correct_any"]) == (False, True)


def test_11_a_search_that_prints_everything_is_no_solution():
    row = scored("strict", benchmark="simuleq", gold="15", pot="for x in range(20):\n    print(x)")
    assert (row["correct"], row["correct_any"]) == (False, False)


def test_the_working_directory_is_left_as_it_was():
    before = sorted(os.listdir("."))
    both(pot="print(1)")
    assert sorted(os.listdir(".")) == before
