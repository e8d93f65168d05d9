"""`--remap`: originals, remapped questions and controls asked, and compared item by item."""

import json

import pytest
from command import ScriptedModel, message_of, read_rows, read_scores
from tiny import tiny_llama, tiny_tokenizer

from numsft.evaluation.prompts import prompt
from numsft.evaluation.remap.benchmark import questions, read_variants

pytest.importorskip("lm_eval")

ITEMS = {3: ("Ann has 4 pens and buys 5.", 9), 8: ("Bob has 7 cups and breaks 2.", 5)}
CHANGED = {3: ("Ann has 3 pens and buys 6.", 9), 8: ("Bob has 8 cups and breaks 2.", 6)}
RENAMED = {3: ("Eve has 4 pens and buys 5.", 9), 8: ("Tom has 7 cups and breaks 2.", 5)}
ANSWERS = {
    ITEMS[3][0]: " 4 + 5 = 9. The answer is 9",
    CHANGED[3][0]: " 3 + 6 = 8. The answer is 8",  # a slip in the sum
    RENAMED[3][0]: " The answer is 9",
    ITEMS[8][0]: " 7 - 2 = 5. The answer is 5",
    CHANGED[8][0]: " 8 + 2 = 10. The answer is 10",  # the wrong operation
    RENAMED[8][0]: " The answer is 5",
}


@pytest.fixture
def variants(tmp_path):
    path = tmp_path / "remap.jsonl"
    with path.open("w") as file:
        for item, (original, answer) in ITEMS.items():
            for kind, source in (("remap", CHANGED), ("control", RENAMED)):
                row = {"index": item, "variant": 0, "kind": kind, "original_question": original}
                row |= {"original_answer": str(answer), "question": source[item][0]}
                file.write(json.dumps(row | {"answer": str(source[item][1])}) + "\n")
    return path


@pytest.fixture
def scripted(monkeypatch, variants):
    from numsft.evaluation import engine as engines

    asked = {
        prompt(question, form): "" if form == "pot" else ANSWERS[question.question]
        for question in questions(read_variants(variants))
        for form in ("pot", "cot")
    }
    made = engines.Engine(
        ScriptedModel(asked), tiny_tokenizer(), tiny_llama(max_position_embeddings=4096), window=2
    )
    monkeypatch.setattr(engines, "load_engine", lambda *_, **__: made)


def test_each_item_is_asked_once_as_published_then_its_variants(variants):
    rows = read_variants(variants)
    kinds = ["original", "remap", "control"]
    assert [(row["item"], row["kind"]) for row in rows] == [(i, kind) for i in (3, 8) for kind in kinds]
    assert len({(row["benchmark"], row["index"]) for row in rows}) == 6
    assert [row["item"] for row in read_variants(variants, limit=1)] == [3, 3, 3]


def test_accuracy_is_among_the_items_solved_and_errors_are_told_apart(evaluate, scripted, variants, tmp_path):
    status, out, err = evaluate("--remap", variants, "--no_entropy")
    assert status == 0, err
    found = read_scores(tmp_path / "out")
    assert set(found["benchmarks"]) == {"gsm8k_original", "gsm8k_remap", "gsm8k_control"}
    remap = found["remap"]
    assert (remap["n_items"], remap["n_solved"], remap["original_accuracy"]) == (2, 2, 1.0)
    assert (remap["remap"]["accuracy"], remap["control"]["accuracy"]) == (0.0, 1.0)
    assert remap["mcnemar"] == {"a_only": 0, "b_only": 2, "p": 0.5}
    assert remap["errors"]["remap"] == {
        "correct": 0,
        "arithmetic": 1,
        "logical": 1,
        "unchecked": 0,
        "program": 0,
    }
    assert remap["errors"]["original"]["correct"] == 2
    assert "other numbers" in out and "2 of 2 (100.0 %) items solved as published" in out

    samples = tmp_path / "out" / "samples.jsonl"
    status, _, err = evaluate("--rescore", samples, name=None, output_dir=tmp_path / "again")
    assert status == 0, err
    assert read_scores(tmp_path / "again")["remap"] == remap
    assert [row["item"] for row in read_rows(tmp_path / "again")] == [3, 8, 3, 8, 3, 8]


@pytest.mark.parametrize("content", ["", "{}\n", "[1]\n", "no\n"])
def test_a_file_that_holds_no_variants_is_one_message(evaluate, tmp_path, content):
    (tmp_path / "bad.jsonl").write_text(content)
    status, _, err = evaluate("--remap", tmp_path / "bad.jsonl")
    assert status == 2
    assert "numsft.evaluation.remap" in message_of(err)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_is_one_message(evaluate, tmp_path):
    status, _, err = evaluate("--remap", tmp_path / "nowhere.jsonl")
    assert status == 2 and "nowhere.jsonl" in message_of(err)
