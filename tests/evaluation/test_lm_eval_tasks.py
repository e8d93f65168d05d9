"""The benchmarks inside lm-eval: the same questions, prompts and scores as outside it."""

import json
import os
import subprocess
import sys

import pytest
from command import read_rows, read_scores
from tiny import tiny_llama, tiny_tokenizer

from numsft.errors import UserError
from numsft.evaluation.benchmarks import BENCHMARKS, kind_of, load_questions
from numsft.evaluation.lm_eval_tasks import folder
from numsft.evaluation.prompts import CHOICE_OPENING, prompt
from numsft.evaluation.sandbox import run_programs
from numsft.evaluation.scores import PAPER_BENCHMARKS, benchmark_scores
from numsft.evaluation.scoring import MODES, score_rows

lm_eval = pytest.importorskip("lm_eval")

from lm_eval.api.model import LM  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

pytestmark = pytest.mark.skipif(not os.environ.get("NUMSFT_DATA_DIR"), reason="NUMSFT_DATA_DIR is not set")


def task_name(benchmark, mode):
    return f"numsft_{benchmark}" + ("_paper" if mode == "paper" else "")


def manager(**metadata):
    return TaskManager(include_path=str(folder()), include_defaults=False, metadata=metadata)


def run(lm, *tasks, metadata=None, **options):
    settings = {"confirm_run_unsafe_code": True, "limit": 3, "bootstrap_iters": 100} | options
    found = lm_eval.simple_evaluate(
        model=lm, tasks=list(tasks), task_manager=manager(**(metadata or {})), **settings
    )
    assert found is not None
    return found


class Scripted(LM):
    """Answers a prompt by a program or a text of its own choice; keeps what it was asked."""

    def __init__(self, answers):
        super().__init__()
        self.answers, self.asked = answers, []

    def generate_until(self, requests, disable_tqdm=False):
        self.asked += [(request.args[0], request.args[1]) for request in requests]
        return [self.answers[request.doc["index"]][request.idx] for request in requests]

    def loglikelihood(self, requests):
        raise NotImplementedError

    def loglikelihood_rolling(self, requests):
        raise NotImplementedError


@pytest.fixture(scope="module")
def random_model():
    model = tiny_llama(max_position_embeddings=4096, seed=5).eval()
    return HFLM(pretrained=model, tokenizer=tiny_tokenizer(), batch_size=4)


def answers_to(questions):
    """By turns: a right program, a program that fails before a right text, a wrong program, neither."""
    kinds = [
        lambda gold: (f" print({gold!r})", "The answer is 0"),
        lambda gold: (" print(1 / 0)", f"The answer is {gold}"),
        lambda gold: (" x = 12345678\nprint(x)", f"The answer is {gold}"),
        lambda gold: (" nothing to say", "nor here"),
    ]
    return [kinds[i % len(kinds)](question.gold) for i, question in enumerate(questions)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("benchmark", ["gsm8k", "math", "math500", "svamp", "simuleq"])
def test_an_open_benchmark_scores_as_outside_lm_eval(benchmark, mode):
    questions = load_questions(benchmark, limit=8)
    answers = answers_to(questions)
    name = task_name(benchmark, mode)
    found = run(Scripted(answers), name, limit=8)
    rows = score_rows(
        questions, [{"pot": pot, "cot": cot} for pot, cot in answers], mode, run_programs=run_programs
    )
    expected = benchmark_scores(rows)
    assert 0 < expected["accuracy"] < 1
    assert 0 < expected["answered"] < 1
    results = found["results"][name]
    assert results["accuracy,none"] == expected["accuracy"]
    assert results["accuracy_stderr,none"] > 0
    assert results["answered,none"] == expected["answered"]
    assert results["log_mae,none"] == pytest.approx(expected["log_mae"]["ln_eps"])
    assert [results["log_mae_low,none"], results["log_mae_high,none"]] == expected["log_mae_ci95"]
    assert [bool(s["accuracy"]) for s in found["samples"][name]] == [row["correct"] for row in rows]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("benchmark", ["aqua", "sat_math", "mmlu_math"])
def test_a_multiple_choice_benchmark_scores_as_outside_lm_eval(benchmark, mode):
    questions = load_questions(benchmark, limit=9)
    answers = [
        [f"The answer is ({question.gold})", "The answer is (J)", "No idea."][i % 3 :][:1]
        for i, question in enumerate(questions)
    ]
    name = task_name(benchmark, mode)
    lm = Scripted(answers)
    found = run(lm, name, limit=9)
    rows = score_rows(questions, [{"cot": cot} for (cot,) in answers], mode, run_programs)
    results = found["results"][name]
    assert results["accuracy,none"] == sum(row["correct"] for row in rows) / 9
    assert results["answered,none"] == sum(row["answered"] for row in rows) / 9
    assert len(lm.asked) == 9
    assert "log_mae,none" not in results


@pytest.mark.parametrize("mode", MODES)
def test_a_random_model_scores_as_its_texts_do(random_model, mode):
    name = task_name("svamp", mode)
    found = run(random_model, name, gen_kwargs="max_gen_toks=24")
    samples = found["samples"][name]
    texts = [{"pot": s["filtered_resps"][0], "cot": s["filtered_resps"][1]} for s in samples]
    rows = score_rows(load_questions("svamp", limit=3), texts, mode, run_programs)
    assert [s["accuracy"] for s in samples] == [float(row["correct"]) for row in rows]
    assert [s["answered"] for s in samples] == [float(row["answered"]) for row in rows]
    assert all(text["pot"] for text in texts)


@pytest.mark.parametrize("mode", MODES)
def test_the_numbers_are_those_of_the_evaluation_command(evaluate, model, tmp_path, mode):
    status, _, err = evaluate(
        *("--benchmarks", "svamp", "--limit", 6, "--max_new_tokens", 24, "--no_entropy", "--mode", mode)
    )
    assert status == 0, err
    name = task_name("svamp", mode)
    lm = HFLM(pretrained=str(model), device="cpu", batch_size=4)
    found = run(lm, name, limit=6, gen_kwargs="max_gen_toks=24")
    rows = read_rows(tmp_path / "out")
    for row, sample in zip(rows, found["samples"][name], strict=True):
        assert row["pot"] == sample["filtered_resps"][0]
        assert row["cot"] in (None, sample["filtered_resps"][1])
        assert (row["correct"], row["answered"]) == (sample["accuracy"], sample["answered"])
    entry = read_scores(tmp_path / "out")["benchmarks"]["svamp"]
    results = found["results"][name]
    assert results["answered,none"] == entry["answered"]
    assert results["log_mae,none"] == entry["log_mae"]["ln_eps"]


def test_prompts_and_limits_are_those_of_the_command():
    lm = Scripted([("", "")] * 2)
    run(lm, "numsft_gsm8k_paper", limit=2)
    questions = load_questions("gsm8k", limit=2)
    assert [asked for asked, _ in lm.asked] == [
        prompt(question, form) for question in questions for form in ("pot", "cot")
    ]
    _, settings = lm.asked[0]
    assert settings["max_gen_toks"] == 1500
    assert settings["do_sample"] is False
    assert "####" in settings["until"]
    strict = Scripted([("", "")])
    run(strict, "numsft_gsm8k", limit=1, gen_kwargs="max_gen_toks=7")
    assert strict.asked[0][1]["max_gen_toks"] == 7
    assert "####" not in strict.asked[0][1]["until"]


@pytest.mark.parametrize("benchmark", ["gsm8k", "aqua"])
def test_a_chat_model_is_asked_through_its_template(random_model, monkeypatch, benchmark):
    asked = []

    def answer(requests, disable_tqdm=False):
        asked.extend(request.args[0] for request in requests)
        return ["" for _ in requests]

    monkeypatch.setattr(random_model, "generate_until", answer)
    run(random_model, f"numsft_{benchmark}", limit=1, apply_chat_template=True)
    question = load_questions(benchmark, limit=1)[0]
    forms = ("cot",) if kind_of(benchmark) == "choice" else ("pot", "cot")
    assert asked == [prompt(question, form, "chat", tiny_tokenizer()) for form in forms]
    assert asked[-1].endswith(CHOICE_OPENING.lstrip()) == (benchmark == "aqua")
    asked.clear()
    run(random_model, "numsft_gsm8k", limit=1, apply_chat_template=True, system_instruction="Be brief.")
    assert asked[0].startswith("<|im_start|>system\nBe brief.<|im_end|><|im_start|>user\nJanet")


def test_the_mode_can_be_chosen_by_metadata():
    code = " price = 9\ntotal = 18\n"  # without a print: the paper takes its last number, strict none
    for mode, correct in (("paper", 1.0), ("strict", 0.0)):
        found = run(Scripted([(code, "")]), "numsft_gsm8k", limit=1, metadata={"mode": mode})
        assert found["results"]["numsft_gsm8k"]["accuracy,none"] == correct
        assert found["configs"]["numsft_gsm8k"]["metadata"]["mode"] == mode
    with pytest.raises(UserError, match="the mode of numsft_gsm8k is 'loose'; expected strict or paper"):
        manager(mode="loose").load(["numsft_gsm8k"])


def test_texts_that_may_be_programs_need_a_confirmation():
    for name in ("numsft_gsm8k", "numsft_math", "numsft_aqua_paper"):
        with pytest.raises(ValueError, match="marked as unsafe"):
            run(Scripted([("", "")]), name, limit=1, confirm_run_unsafe_code=False)
    # The strict rules run nothing on multiple choice.
    run(Scripted([("print(1)",)]), "numsft_aqua", limit=1, confirm_run_unsafe_code=False)


def test_without_isolation_nothing_is_generated(monkeypatch):
    from types import SimpleNamespace

    import numsft.evaluation.sandbox as sandbox

    monkeypatch.setattr(sandbox, "isolation", lambda: SimpleNamespace(level="none"))
    lm = Scripted([("", "")])
    with pytest.raises(UserError, match="cannot be isolated on this machine"):
        run(lm, "numsft_gsm8k", limit=1)
    assert lm.asked == []
    run(lm, "numsft_gsm8k", limit=1, metadata={"allow_no_sandbox": True})
    assert len(lm.asked) == 2


def test_a_benchmarks_programs_are_run_in_one_batch(monkeypatch):
    from numsft.evaluation.runner import ProgramRunner

    batches = []
    run_them = ProgramRunner.__call__

    def note(runner, programs):
        batches.append(len(programs))
        return run_them(runner, programs)

    monkeypatch.setattr(ProgramRunner, "__call__", note)
    run(Scripted([(" print(18)", "")] * 5), "numsft_gsm8k", limit=5)
    assert batches == [5]


def test_examples_in_the_prompt_are_refused():
    task = manager().load(["numsft_gsm8k"])["tasks"]["numsft_gsm8k"]
    with pytest.raises(UserError, match="num_fewshot is 3; the numsft tasks are asked without examples"):
        task.fewshot_context(task.test_docs()[0], 3)
    # lm-eval itself leaves a task that says 0 at 0.
    lm = Scripted([("", "")])
    run(lm, "numsft_gsm8k", limit=1, num_fewshot=3)
    assert lm.asked[0][0] == prompt(load_questions("gsm8k", limit=1)[0], "pot")


def test_chosen_rows_are_scored_against_their_own_gold():
    questions = load_questions("svamp", limit=12)
    answers = [(f" print({q.gold})" if q.index == 9 else " print(-1)", "") for q in questions]
    found = run(Scripted(answers), "numsft_svamp", limit=None, samples={"numsft_svamp": [4, 9, 11]})
    assert [(s["doc_id"], s["accuracy"]) for s in found["samples"]["numsft_svamp"]] == [
        (4, 0.0),
        (9, 1.0),
        (11, 0.0),
    ]


def test_predict_only_runs_no_program(monkeypatch):
    import numsft.evaluation.lm_eval_tasks.task as task

    monkeypatch.setattr(task, "score_rows", lambda *_: pytest.fail("scored"))
    found = run(Scripted([(" print(18)", "")]), "numsft_gsm8k", limit=1, predict_only=True)
    assert found["samples"]["numsft_gsm8k"][0]["filtered_resps"] == [" print(18)", ""]


def test_there_is_a_task_for_each_benchmark_and_mode_and_two_groups():
    found = manager()
    expected = {task_name(benchmark, mode) for benchmark in BENCHMARKS for mode in MODES}
    assert set(found.all_subtasks) == expected
    assert set(found.all_groups) == {"numsft", "numsft_paper"}
    for benchmark in BENCHMARKS:
        for mode in MODES:
            name = task_name(benchmark, mode)
            task = found.load([name])["tasks"][name]
            assert (task.benchmark, task.mode) == (benchmark, mode)
            assert len(task.eval_docs) == BENCHMARKS[benchmark].rows


@pytest.mark.parametrize("mode", MODES)
def test_the_group_is_the_mean_of_the_papers_seven_benchmarks(mode):
    group = "numsft_paper" if mode == "paper" else "numsft"
    answers = [("The answer is 18", "The answer is (A)"), ("The answer is (A)", "x"), ("B", "")]
    found = run(Scripted(answers), group)
    names = [task_name(benchmark, mode) for benchmark in PAPER_BENCHMARKS]
    assert set(found["group_subtasks"][group]) == set(names)
    accuracies = [found["results"][name]["accuracy,none"] for name in names]
    assert sum(accuracies) > 0
    assert found["results"][group]["accuracy,none"] == pytest.approx(sum(accuracies) / 7)


def test_missing_data_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMSFT_DATA_DIR", str(tmp_path))
    with pytest.raises(UserError, match=r"gsm8k/test\.jsonl does not exist"):
        manager().load(["numsft_gsm8k"])


@pytest.mark.slow
def test_the_command_line_of_lm_eval_runs_a_task_offline(tmp_path):
    tiny_llama(max_position_embeddings=4096, seed=5).save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    path = subprocess.run(
        [sys.executable, "-m", "numsft.evaluation.lm_eval_tasks"], capture_output=True, text=True, check=True
    ).stdout
    assert path == f"{folder()}\n"
    command = [sys.executable, "-m", "lm_eval", "run", "--include_path", path.strip()]
    command += ["--tasks", "numsft_gsm8k", "--model", "hf", "--device", "cpu", "--limit", "2"]
    command += ["--model_args", f"pretrained={tmp_path / 'model'}", "--gen_kwargs", "max_gen_toks=16"]
    command += ["--output_path", str(tmp_path / "out"), "--log_samples"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache")}

    refused = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert refused.returncode != 0
    assert "marked as unsafe" in refused.stderr
    done = subprocess.run(
        [*command, "--confirm_run_unsafe_code"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "numsft_gsm8k" in done.stdout
    (results,) = (tmp_path / "out").rglob("results_*.json")
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    texts = [{"pot": row["filtered_resps"][0], "cot": row["filtered_resps"][1]} for row in rows]
    scored = score_rows(load_questions("gsm8k", limit=2), texts, "strict", run_programs)
    found = json.loads(results.read_text())["results"]["numsft_gsm8k"]
    assert found["accuracy,none"] == sum(row["correct"] for row in scored) / 2
    assert found["answered,none"] == sum(row["answered"] for row in scored) / 2
