"""The evaluation command's messages: a mistake costs one sentence, exit status 2, and leaves nothing."""

import os
import re
import shutil

import pytest
from command import GSM8K, SHORT, message_of, read_scores
from tiny import tiny_tokenizer

from numsft.evaluation import engine as engines

pytestmark = pytest.mark.skipif(not os.environ.get("NUMSFT_DATA_DIR"), reason="NUMSFT_DATA_DIR is not set")
pytest.importorskip("lm_eval")


@pytest.mark.parametrize(
    "arguments, name, message",
    [
        ((), None, "name a MODEL, or --rescore SAMPLES, or --compare A B, and only one of them"),
        (("--rescore", "x"), "MODEL", "and only one of them"),
        (("--compare", "a", "b"), "MODEL", "and only one of them"),
        (("--compare", "a"), None, "--compare: expected 2 arguments"),
        (("extra",), "MODEL", "unrecognized arguments: extra"),
        (("--limt", 3), "MODEL", "unrecognized arguments: --limt 3"),
        (("--limit", "x"), "MODEL", "--limit: invalid int value: 'x'"),
        (("--limit", 0), "MODEL", "--limit is 0; expected 1 or more"),
        (("--batch_size", -1), "MODEL", "--batch_size is -1; expected 1 or more"),
        (("--max_new_tokens", 0), "MODEL", "--max_new_tokens is 0; expected 1 or more"),
        (("--workers", 0), "MODEL", "--workers is 0; expected 1 or more"),
        (("--nupa_per_length", 0), "MODEL", "--nupa_per_length is 0; expected 1 or more"),
        (("--benchmarks", "gsm9k"), "MODEL", "there is no benchmark 'gsm9k'; did you mean gsm8k?"),
        (("--benchmarks", "gsm8k,hellaswag"), "MODEL", "no benchmark 'hellaswag'; expected some of gsm8k"),
        (("--benchmarks", ","), "MODEL", "--benchmarks is empty; expected some of gsm8k"),
        (("--mode", "loose"), "MODEL", r"--mode: invalid choice: 'loose' \(choose from '?strict"),
        (("--backend", "tpu"), "MODEL", "--backend: invalid choice: 'tpu'"),
        (("--backend", "vllm"), "MODEL", "vllm, which is not installed: run `pip install vllm`"),
        (("--dtype", "float99"), "MODEL", "--dtype: invalid choice: 'float99'"),
        (("--prompt_template", "x"), "MODEL", "--prompt_template: invalid choice: 'x'"),
        (("--gguf_file", "x.gguf"), "MODEL", "gguf_file is 'x.gguf', which is not in .*: it holds none"),
        (("--data_dir", "nowhere"), "MODEL", "nowhere/gsm8k/test.jsonl does not exist; expected the data"),
        (("--push", "name"), "MODEL", "--push names the model whose card gets the scores, USER/NAME"),
        (("--max_new_tokens", 5000), "MODEL", "do not fit into the model's context of 2048: lower --max_new"),
        (("--benchmarks", "nupa,aqua"), "MODEL", "max_new_tokens 2048 do not fit into the model's context"),
        ((), "./nowhere", "model ./nowhere is no folder here and no Hub id"),
        ((), "owner/nowhere", "cannot load the tokenizer of owner/nowhere"),
        ((), "package:nowhere", "that package is not installed"),
        ((), "package:json", "model folder package:json has no config.json"),
        (("--rescore", "nowhere.jsonl"), None, "nowhere.jsonl cannot be read"),
        (("--compare", "nowhere", "nothing"), None, "nowhere cannot be read"),
    ],
)
def test_a_users_mistake_is_one_message_and_nothing_is_written(
    evaluate, model, tmp_path, arguments, name, message
):
    status, out, err = evaluate(*arguments, name=str(model) if name == "MODEL" else name)
    assert status == 2
    assert out == ""
    assert re.search(message, message_of(err))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", ["weights", "config", "chat template"])
def test_a_model_that_cannot_be_asked_is_named_and_nothing_is_written(evaluate, model, tmp_path, damage):
    folder = tmp_path / "damaged"
    shutil.copytree(model, folder)
    if damage == "weights":
        (folder / "model.safetensors").write_bytes(b"xx")
    elif damage == "config":
        (folder / "config.json").write_text("{")
    else:
        tokenizer = tiny_tokenizer()
        tokenizer.chat_template = None
        (folder / "chat_template.jinja").unlink()
        tokenizer.save_pretrained(folder)
    status, _, err = evaluate(*SHORT, "--prompt_template", "chat", name=str(folder))
    assert status == 2
    found = message_of(err)
    expected = "the tokenizer has no chat template" if damage == "chat template" else "cannot load"
    assert expected in found
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_cannot_be_written_is_named_before_anything_is_asked(
    evaluate, tmp_path, monkeypatch
):
    monkeypatch.setattr(engines, "load_engine", lambda *_, **__: pytest.fail("the model was loaded"))
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        status, _, err = evaluate(*SHORT, output_dir=place)
        assert status == 2
        assert f"cannot write to {place}" in message_of(err)
        assert "name a folder that can be written with --output_dir" in err
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, how: how == os.R_OK and real(path, how))
    status, _, err = evaluate(*SHORT)
    assert status == 2
    assert "no permission" in message_of(err)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_samples_file_of_unknown_origin_is_not_added_to(evaluate, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "samples.jsonl").write_text('{"benchmark": "svamp", "index": 0, "pot": "1"}\n')
    status, _, err = evaluate(*SHORT)
    assert status == 2
    assert "without the settings.json that says whose they are" in message_of(err)


def test_missing_or_changed_data_are_named(evaluate, tmp_path, monkeypatch):
    (tmp_path / "data" / "svamp").mkdir(parents=True)
    (tmp_path / "data" / "svamp" / "SVAMP.json").write_text("[]")
    status, _, err = evaluate(*SHORT, "--data_dir", tmp_path / "data")
    assert status == 2
    assert "has sha256" in message_of(err)
    monkeypatch.setenv("NUMSFT_DATA_DIR", str(tmp_path))
    status, _, err = evaluate(*SHORT)
    assert status == 2
    assert "svamp/SVAMP.json does not exist" in message_of(err)


def test_programs_that_cannot_be_isolated_are_refused_unless_allowed(
    evaluate, scripted, tmp_path, monkeypatch
):
    from types import SimpleNamespace

    from numsft.evaluation import sandbox

    real = sandbox.isolation()
    monkeypatch.setattr(sandbox, "isolation", lambda: SimpleNamespace(level="none"))
    status, _, err = evaluate(*GSM8K)
    assert status == 2
    assert "accept the risk with --allow_no_sandbox" in message_of(err)
    assert scripted.asked == []
    monkeypatch.setattr(sandbox, "isolation", lambda: real)
    assert evaluate(*GSM8K, "--allow_no_sandbox")[0] == 0


def test_without_matplotlib_the_plots_alone_are_missing(evaluate, tmp_path, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find(name, *rest)
    )
    status, _, err = evaluate(*SHORT)
    assert status == 0
    assert 'run `pip install "numsft[report]"`' in err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("samples.jsonl", "scores.json", "scores.md", "settings.json")
    }


def test_a_full_accelerator_is_one_message(evaluate, scripted, tmp_path, monkeypatch):
    import torch

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(scripted, "generate_until", full)
    status, _, err = evaluate(*GSM8K)
    assert status == 1
    assert "the same command with a smaller --batch_size goes on" in message_of(err)


def test_scores_go_to_the_card_and_a_failed_push_leaves_them_whole(evaluate, tmp_path, monkeypatch):
    from numsft.errors import RunError
    from numsft.evaluation import card

    pushed = []
    monkeypatch.setattr(
        card, "push_scores", lambda folder, name: pushed.append((folder, name)) or "https://x"
    )
    status, out, _ = evaluate(*SHORT, "--push", "me/model")
    assert status == 0
    assert pushed == [(tmp_path / "out", "me/model")]
    assert out.endswith("https://x\n")

    def fail(folder, name):
        raise RunError("the scores were not put on the card")

    monkeypatch.setattr(card, "push_scores", fail)
    status, _, err = evaluate(*SHORT, "--push", "me/model")
    assert status == 1
    assert message_of(err) == "error: the scores were not put on the card"
    assert read_scores(tmp_path / "out")["benchmarks"]["svamp"]["n"] == 3
