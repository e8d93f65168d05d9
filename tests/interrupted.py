"""The recipe that tests of faults interrupt, and the comparison with the run that nobody interrupted."""

import json

import pytest
import yaml
from safetensors.torch import load_file
from tiny import tiny_llama, tiny_tokenizer

TIMES = ("runtime", "per_second")  # what a clock measures is no part of the result


def write_recipe(folder, **keys):
    # Dropout everywhere: a random state that is not restored shows.
    tiny_llama(vocab_size=104, attention_dropout=0.1).save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    settings = dict(
        model_name_or_path=str(folder / "model"),
        dataset="nupa",
        nupa_tasks=["integer_add"],
        nupa_digits=[1, 2],
        nupa_size=72,
        use_peft=True,
        lora_target_modules="all-linear",
        max_steps=40,  # into the third epoch
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        warmup_steps=3,
        activation_checkpointing=False,
        logging_steps=2,  # windows that end between the checkpoints
        save_strategy="steps",
        save_steps=3,
        save_total_limit=2,
        disable_tqdm=True,
        seed=0,
    )
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**settings, **keys}), encoding="utf-8")
    return str(folder / "recipe.yaml")


def same_result(ours, theirs):
    """The weights bit for bit; the log and every other entry of the trainer's state."""
    name = next(p.name for p in theirs.glob("*model.safetensors"))
    weights, expected = load_file(ours / name), load_file(theirs / name)
    assert weights.keys() == expected.keys() and expected
    for key in expected:
        assert weights[key].equal(expected[key]), key
    states = [json.loads((folder / "trainer_state.json").read_text()) for folder in (ours, theirs)]
    for state in states:
        state["log_history"] = [
            {k: v for k, v in entry.items() if not k.endswith(TIMES)} for entry in state["log_history"]
        ]
        state["log_history"][-1].pop("train_loss", None)  # summed in another order, see below
    assert states[0]["log_history"] == states[1]["log_history"]
    assert any("number_loss" in entry for entry in states[0]["log_history"])
    assert states[0]["global_step"] == states[1]["global_step"]
    assert states[0]["total_flos"] == states[1]["total_flos"]
    last = [
        json.loads((folder / "trainer_state.json").read_text())["log_history"][-1]
        for folder in (ours, theirs)
    ]
    assert last[0]["train_loss"] == pytest.approx(last[1]["train_loss"], rel=1e-6)
