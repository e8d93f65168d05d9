"""The evaluation command stopped, killed and started again: nothing asked twice, nothing mixed up."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from command import GSM8K, SHORT, message_of, read_rows
from tiny import tiny_llama, tiny_tokenizer

from numsft.evaluation import engine as engines
from numsft.evaluation.benchmarks import load_questions
from numsft.evaluation.prompts import prompt

pytestmark = pytest.mark.skipif(not os.environ.get("NUMSFT_DATA_DIR"), reason="NUMSFT_DATA_DIR is not set")
pytest.importorskip("lm_eval")

OTHER = [
    (("--mode", "paper"), "mode"),
    (("--limit", 2), "limit"),
    (("--max_new_tokens", 9), "max_new_tokens"),
    (("--dtype", "float32"), "dtype"),
    (("--prompt_template", "none"), "prompt_template"),
    (("--benchmarks", "svamp,aqua"), "questions"),
]


@pytest.mark.parametrize("asked_before", [0, 2, 4, 6])
def test_a_stopped_run_goes_on_and_asks_nothing_twice(evaluate, scripted, tmp_path, asked_before):
    assert evaluate(*GSM8K, output_dir=tmp_path / "whole")[0] == 0
    everything = list(scripted.asked)
    scripted.asked.clear()
    scripted.stop_at = asked_before
    status, _, err = evaluate(*GSM8K)
    assert status == 1
    assert "stopped: the same command goes on where this one stopped" in err
    assert (tmp_path / "out").exists() == bool(asked_before)
    scripted.stop_at = None
    assert evaluate(*GSM8K)[0] == 0
    assert scripted.asked == everything
    for name in ("samples.jsonl", "scores.json", "settings.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_finished_run_is_not_asked_again_and_its_model_not_loaded(evaluate, tmp_path, monkeypatch):
    assert evaluate(*SHORT)[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.js*")}
    monkeypatch.setattr(engines, "load_engine", lambda *_, **__: pytest.fail("the model was loaded"))
    assert evaluate(*SHORT)[0] == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.js*")} == before


def test_a_killed_process_leaves_what_the_next_one_needs(evaluate, model, tmp_path, monkeypatch):
    arguments = ["--benchmarks", "svamp", "--limit", "12", "--max_new_tokens", "200", "--batch_size", "1"]
    arguments += ["--no_entropy", "--output_dir", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "numsft.evaluation", str(model), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    samples = tmp_path / "out" / "samples.jsonl"
    end = time.monotonic() + 120
    while not (samples.exists() and samples.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = [json.loads(line) for line in samples.read_bytes().split(b"\n")[:-1]]
    done = {row["index"] for row in kept if row.get("pot") is not None}
    assert 3 <= len(done)
    assert not (tmp_path / "out" / "scores.json").exists()

    asked = []
    answer = engines.Engine.complete

    def note(engine, prompts, *rest):
        asked.extend(prompts)
        return answer(engine, prompts, *rest)

    monkeypatch.setattr(engines.Engine, "complete", note)
    status, _, err = evaluate(*arguments[:-2])
    assert status == 0, err
    questions = load_questions("svamp", limit=12)
    again = [q.index for q in questions if prompt(q, "pot") in asked]
    assert sorted([*again, *done]) == list(range(12))
    assert [row["index"] for row in read_rows(tmp_path / "out")] == list(range(12))


def test_other_settings_model_or_data_are_refused_and_nothing_is_changed(evaluate, tmp_path):
    assert evaluate(*SHORT)[0] == 0
    folder = tmp_path / "out"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = tmp_path / "other"
    tiny_llama(max_position_embeddings=2048, seed=6).save_pretrained(other)
    tiny_tokenizer().save_pretrained(other)
    for arguments, key in OTHER:
        status, _, err = evaluate(*SHORT, *arguments)
        assert status == 2
        assert f"holds samples of a run with {key} " in message_of(err)
    status, _, err = evaluate(*SHORT, name=str(other))
    assert status == 2
    assert "holds samples of a run with model " in message_of(err)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_same_model_is_known_by_another_spelling_and_in_any_folder(
    evaluate, model, tmp_path, monkeypatch
):
    monkeypatch.chdir(model.parent)
    assert evaluate(*SHORT, name="tiny")[0] == 0
    monkeypatch.setattr(engines, "load_engine", lambda *_, **__: pytest.fail("the model was loaded"))
    assert evaluate(*SHORT, name="./tiny/")[0] == 0
    (model.parent / "something.json").write_text("{}")  # next to the model, of no concern
    assert evaluate(*SHORT, "--batch_size", 3, "--workers", 1, name="tiny")[0] == 0


def test_scores_may_lie_in_the_models_own_folder(evaluate, model, tmp_path, monkeypatch):
    folder = tmp_path / "own"
    shutil.copytree(model, folder)
    assert evaluate(*SHORT, name=str(folder), output_dir=folder)[0] == 0
    monkeypatch.setattr(engines, "load_engine", lambda *_, **__: pytest.fail("the model was loaded"))
    assert evaluate(*SHORT, name=str(folder), output_dir=folder)[0] == 0
