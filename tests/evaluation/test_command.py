"""`python -m numsft.evaluation`: which files and fields it writes, what it asks, of which model."""

import json
import os
import shutil

import pytest
from command import GSM8K, SHORT, message_of, read_rows, read_scores
from tiny import tiny_tokenizer

from numsft.evaluation import engine as engines
from numsft.evaluation.benchmarks import load_questions
from numsft.evaluation.prompts import prompt

pytestmark = pytest.mark.skipif(not os.environ.get("NUMSFT_DATA_DIR"), reason="NUMSFT_DATA_DIR is not set")
pytest.importorskip("lm_eval")

ROW_FIELDS = {
    *("benchmark", "index", "question", "gold", "pot", "cot", "pot_stdout", "pot_ok", "pot_exec_error"),
    *("used_cot", "extracted", "matched_by", "correct", "answered"),
}
PLOTS = {"accuracy.png", "places.png", "entropy.png"}


def test_the_files_and_their_fields(evaluate, tmp_path):
    status, out, err = evaluate(*SHORT, "--benchmarks", "svamp,aqua,nupa", "--limit", 2)
    assert status == 0, err
    folder = tmp_path / "out"
    assert {path.name for path in folder.iterdir()} == {
        *("samples.jsonl", "scores.json", "scores.md", "settings.json"),
        *PLOTS,
    }
    assert out == (folder / "scores.md").read_text() + "\n"
    assert f"written to {folder}" in err
    rows = read_rows(folder)
    assert [(row["benchmark"], row["index"]) for row in rows] == [
        (name, index) for name in ("svamp", "aqua", "nupa") for index in (0, 1)
    ]
    for row in rows:
        assert row.keys() >= ROW_FIELDS - ({"pot_stdout"} if row["benchmark"] == "nupa" else set())
        assert isinstance(row["correct"], bool)
        assert isinstance(row["extracted"], str)
    assert all(row["pot"] is None for row in rows if row["benchmark"] != "svamp")

    scores = read_scores(folder)
    assert scores["mode"] == "strict"
    assert scores["sandbox"]["isolation"] in ("full", "partial")
    assert scores["settings"]["prompt_template"] == "alpaca"
    assert scores["settings"]["limit"] == 2
    assert list(scores["benchmarks"]) == ["svamp", "aqua", "nupa"]
    assert scores["macc"] == sum(scores["benchmarks"][n]["accuracy"] for n in ("svamp", "aqua")) / 2
    entry = scores["benchmarks"]["svamp"]
    assert entry.keys() >= {
        *("n", "accuracy", "accuracy_ci95", "answered", "used_cot", "coverage", "log_mae", "log_mae_ci95"),
        *("places", "sign_accuracy", "length_accuracy", "entropy"),
    }
    assert entry["log_mae"].keys() == {"ln_eps", "log10p1", "ln1p", "ln1p_median"}
    assert entry["places"].keys() >= {"0", "1", "2", "3", "4"}
    assert entry["places"]["0"].keys() >= {"n", "mae", "acc"}
    assert entry["n"] == 2
    assert entry["entropy"].keys() == {"generated", "teacher_forced"}


def test_the_backup_is_asked_only_where_the_program_gave_no_answer(evaluate, scripted, tmp_path):
    status, _, err = evaluate(*GSM8K)
    assert status == 0, err
    questions = load_questions("gsm8k", limit=4)
    programs = [prompt(question, "pot") for question in questions]
    reasons = [prompt(question, "cot") for question in questions[1:]]
    assert sorted(scripted.asked[:4]) == sorted(programs)
    assert sorted(scripted.asked[4:]) == sorted(reasons)
    rows = read_rows(tmp_path / "out")
    assert [row["correct"] for row in rows] == [True, True, True, False]
    assert [row["used_cot"] for row in rows] == [False, True, True, True]
    assert [row["answered"] for row in rows] == [True, True, True, False]
    assert [row["pot_exec_error"] for row in rows] == [None, "ZeroDivisionError", None, None]
    assert [row["pot_ok"] for row in rows] == [True, False, None, True]
    entry = read_scores(tmp_path / "out")["benchmarks"]["gsm8k"]
    assert entry["accuracy"] == 0.75
    assert entry["used_cot"] == 0.75
    assert "entropy" not in entry


def test_batch_size_changes_no_answer(evaluate, tmp_path):
    assert evaluate(*SHORT, "--batch_size", 1, output_dir=tmp_path / "one")[0] == 0
    assert evaluate(*SHORT, "--batch_size", 3, output_dir=tmp_path / "three")[0] == 0
    assert read_rows(tmp_path / "one") == read_rows(tmp_path / "three")


def test_number_tasks_are_asked_and_scored(evaluate, tmp_path):
    assert evaluate("--benchmarks", "nupa", "--limit", 5, "--max_new_tokens", 8)[0] == 0
    rows = read_rows(tmp_path / "out")
    assert len(rows) == 5
    for row in rows:
        assert row["question"] == row["prompt"]
        assert row["gold"] == row["answer"]
        assert row["range"] in ("S", "M", "L", "XL")
    scores = read_scores(tmp_path / "out")
    assert scores["benchmarks"]["nupa"]["n"] == 5
    assert scores["sandbox"]["isolation"] is None
    assert scores["macc"] is None


@pytest.mark.parametrize("template", ["chat", "none"])
def test_prompts_are_in_the_template_asked_for(evaluate, monkeypatch, template):
    asked = []
    answer = engines.Engine.complete

    def note(engine, prompts, *rest):
        asked.extend(prompts)
        return answer(engine, prompts, *rest)

    monkeypatch.setattr(engines.Engine, "complete", note)
    status, _, err = evaluate(
        *SHORT, "--benchmarks", "svamp,nupa", "--limit", 1, "--prompt_template", template
    )
    assert status == 0, err
    question = load_questions("svamp", limit=1)[0]
    assert prompt(question, "pot", template, tiny_tokenizer()) in asked
    assert all(text.startswith("<|im_start|>user\n") == (template == "chat") for text in asked)


def test_an_adapter_is_asked_in_the_template_of_its_recipe_and_on_the_base_named_there(
    evaluate, model, tmp_path, monkeypatch
):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    adapter = tmp_path / "adapter"
    base = AutoModelForCausalLM.from_pretrained(model)
    lora = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    get_peft_model(base, lora).save_pretrained(adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": "owner/elsewhere"})
    )
    (adapter / "resolved.yaml").write_text(f"model_name_or_path: {model}\nprompt_template: chat\n")
    status, _, err = evaluate(*SHORT, name=str(adapter))
    assert status == 0, err
    scores = read_scores(tmp_path / "out")
    assert scores["settings"]["prompt_template"] == "chat"
    assert evaluate(*SHORT, "--prompt_template", "chat", output_dir=tmp_path / "base")[0] == 0
    texts, plain = ([row["pot"] for row in read_rows(tmp_path / name)] for name in ("out", "base"))
    assert texts != plain  # the adapter's weights count
    # Other weights of the adapter are another model.
    monkeypatch.setattr(engines, "load_engine", lambda *_, **__: pytest.fail("the model was loaded"))
    assert evaluate(*SHORT, name=str(adapter))[0] == 0
    weights = bytearray((adapter / "adapter_model.safetensors").read_bytes())
    weights[-1] ^= 1
    (adapter / "adapter_model.safetensors").write_bytes(weights)
    status, _, err = evaluate(*SHORT, name=str(adapter))
    assert status == 2
    assert "holds samples of a run with weights " in message_of(err)


def test_a_model_in_an_installed_package_is_found(evaluate, model, tmp_path, monkeypatch):
    shutil.copytree(model, tmp_path / "site" / "tiny_model_package")
    monkeypatch.syspath_prepend(tmp_path / "site")
    status, _, err = evaluate(*SHORT, name="package:tiny_model_package")
    assert status == 0, err
    assert read_scores(tmp_path / "out")["settings"]["model"] == "package:tiny_model_package"
