"""Generation: through lm-eval's own model class, stored as it goes, never asked twice."""

import json
import sys
import types

import pytest
import torch
from tiny import tiny_llama, tiny_tokenizer

from numsft.errors import RunError, UserError
from numsft.evaluation.engine import load_engine
from numsft.evaluation.generate import Request, complete, fingerprint
from numsft.evaluation.store import SampleStore

PROMPTS = ["1+1=", "a much longer prompt, 12345 + 678 = ", "7", "what is 3 times 4? "]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = tiny_llama(seed=3)
    model.generation_config.repetition_penalty = 1.5
    model.generation_config.do_sample = True
    model.generation_config.temperature = 2.0
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def engine(folder):
    return load_engine(str(folder), batch_size=2)


def greedy(folder, prompt, count):
    """Arg-max by hand, one prompt alone, no cache."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    new = []
    for _ in range(count):
        with torch.no_grad():
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1)[:, None]], 1)
        if ids[0, -1] == tokenizer.eos_token_id:
            break
        new.append(ids[0, -1].item())
    return tokenizer.decode(new, skip_special_tokens=True)


def requests(limit=6, stop=()):
    return [Request(("toy", index), prompt, stop, limit) for index, prompt in enumerate(PROMPTS)]


def test_answers_are_greedy_whatever_the_checkpoint_samples_with(folder, engine):
    assert engine.complete(PROMPTS, [], 6) == [greedy(folder, prompt, 6) for prompt in PROMPTS]


def test_an_answer_ends_before_a_stop_string(folder, engine):
    whole = greedy(folder, PROMPTS[1], 6)
    assert engine.complete(PROMPTS[1:2], [whole[2]], 6) == [whole.split(whole[2])[0]]


def test_a_prompt_that_does_not_fit_is_refused(engine):
    with pytest.raises(UserError, match="do not fit into the model's context of"):
        engine.complete(["1"], [], 10**6)


def test_a_question_that_is_answered_is_not_asked_again(engine, tmp_path, monkeypatch):
    store = SampleStore(tmp_path, {"model": "m"})
    assert complete(engine, requests()[:3], "pot", store, "toy") == 3
    asked = []
    answer = engine.complete
    monkeypatch.setattr(
        engine, "complete", lambda prompts, *rest: asked.extend(prompts) or answer(prompts, *rest)
    )
    again = SampleStore(tmp_path, {"model": "m"})
    assert complete(engine, requests(), "pot", again, "toy") == 1
    assert asked == PROMPTS[3:]
    assert {key: row["pot"] for key, row in again.rows.items()} == {
        ("toy", index): text for index, text in enumerate(answer(PROMPTS, [], 6))
    }


def test_a_kill_while_generating_loses_one_window(engine, tmp_path, monkeypatch):
    answer, calls = engine.complete, []

    def die_at_the_second(prompts, *rest):
        calls.append(prompts)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answer(prompts, *rest)

    monkeypatch.setattr(engine, "complete", die_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        complete(engine, requests(), "pot", SampleStore(tmp_path, {}), "toy")
    assert len(SampleStore(tmp_path, {}).rows) == 2  # a window is one batch of two


def test_half_a_line_left_by_a_kill_is_cut_off(tmp_path):
    store = SampleStore(tmp_path, {"model": "m"})
    store.add([{"benchmark": "toy", "index": 0, "pot": "x"}])
    with store.path.open("a") as file:
        file.write('{"benchmark": "toy", "ind')
    again = SampleStore(tmp_path, {"model": "m"})
    assert set(again.rows) == {("toy", 0)}
    again.add([{"benchmark": "toy", "index": 1, "pot": "y"}])
    assert [json.loads(line)["index"] for line in store.path.read_text().splitlines()] == [0, 1]


def test_later_lines_add_to_a_row_and_finishing_leaves_one_line_a_question(tmp_path):
    store = SampleStore(tmp_path, {})
    store.add([{"benchmark": "toy", "index": 0, "pot": "x"}])
    store.add([{"benchmark": "toy", "index": 0, "cot": "y"}])
    assert SampleStore(tmp_path, {}).rows[("toy", 0)] == {
        "benchmark": "toy",
        "index": 0,
        "pot": "x",
        "cot": "y",
    }
    store.finish(store.rows.values())
    assert len(store.path.read_text().splitlines()) == 1


def test_samples_of_another_run_are_never_continued(tmp_path):
    SampleStore(tmp_path, {"model": "one", "limit": 5}).add([{"benchmark": "toy", "index": 0, "pot": "x"}])
    with pytest.raises(UserError, match='a run with model "one", not "two": name another --output_dir'):
        SampleStore(tmp_path, {"model": "two", "limit": 5})
    (tmp_path / "settings.json").unlink()
    with pytest.raises(UserError, match="without the settings"):
        SampleStore(tmp_path, {"model": "one", "limit": 5})


def test_nothing_is_written_before_the_first_answer(tmp_path):
    store = SampleStore(tmp_path / "out", {"model": "one"})
    assert not (tmp_path / "out").exists()
    SampleStore(tmp_path / "out", {"model": "two"})
    store.add([{"benchmark": "toy", "index": 0, "pot": "x"}])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"samples.jsonl", "settings.json"}


def test_a_full_disk_is_named_and_what_was_there_is_kept(tmp_path):
    store = SampleStore(tmp_path, {})
    store.add([{"benchmark": "toy", "index": 0, "pot": "x"}])
    kept = store.path.read_text()
    store._file.close()
    store._file = open("/dev/full", "w")
    with pytest.raises(RunError, match=r"No space left on device\): make room, and the same command goes on"):
        store.add([{"benchmark": "toy", "index": 1, "pot": "y"}])
    assert store.path.read_text() == kept


def test_a_line_that_is_no_sample_is_named(tmp_path):
    SampleStore(tmp_path, {}).add([{"benchmark": "toy", "index": 0, "pot": "x"}])
    (tmp_path / "samples.jsonl").write_text("[1]\n")
    with pytest.raises(UserError, match="a line that is no sample"):
        SampleStore(tmp_path, {})


def test_fingerprint_sees_other_weights_of_the_same_size(folder, tmp_path):
    before = fingerprint(folder)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert fingerprint(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(weights)
    assert fingerprint(tmp_path) != before
    assert fingerprint("owner/name") == ""


def test_fingerprint_does_not_see_scores_in_the_models_folder(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for name in ("scores.json", "settings.json", "samples.jsonl", "compare.json"):
        (tmp_path / name).write_text("{}")
    assert fingerprint(tmp_path) == fingerprint(folder)


def test_an_adapter_is_generated_from_with_its_weights(folder, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(0)
    peft_model = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    peft_model.save_pretrained(tmp_path / "adapter")
    merged = peft_model.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    tiny_tokenizer().save_pretrained(tmp_path / "merged")
    engine = load_engine(str(tmp_path / "adapter"), batch_size=4)
    assert engine.complete(PROMPTS, [], 6) == [greedy(tmp_path / "merged", prompt, 6) for prompt in PROMPTS]


@pytest.mark.parametrize("package, backend", [("lm_eval", "hf"), ("vllm", "vllm")])
def test_a_missing_package_is_named_with_its_remedy(folder, monkeypatch, package, backend):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name, *rest)
    )
    with pytest.raises(UserError, match=r"not installed: run `pip install"):
        load_engine(str(folder), backend)


def test_vllm_gets_the_base_and_the_adapter(folder, tmp_path, monkeypatch):
    """A contract test: vLLM itself needs a GPU."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    made = {}

    class VLLM:
        def __init__(self, **settings):
            made.update(settings)

    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "lm_eval.models.vllm_causallms", types.SimpleNamespace(VLLM=VLLM))
    lora = LoraConfig(r=24, target_modules=["q_proj"])
    get_peft_model(AutoModelForCausalLM.from_pretrained(folder), lora).save_pretrained(tmp_path / "lora")
    engine = load_engine(str(tmp_path / "lora"), "vllm", dtype="bfloat16")
    assert made == {
        "pretrained": str(folder),
        "dtype": "bfloat16",
        "batch_size": "auto",
        "lora_local_path": str(tmp_path / "lora"),
        "max_lora_rank": 24,
    }
    assert engine.model is None
    whole = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"])
    get_peft_model(AutoModelForCausalLM.from_pretrained(folder), whole).save_pretrained(tmp_path / "whole")
    with pytest.raises(UserError, match=r"merge it first with `python -m numsft.hub merge"):
        load_engine(str(tmp_path / "whole"), "vllm")
