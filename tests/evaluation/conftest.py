"""The evaluation command on a tiny model, and a model whose answers a test chooses."""

import pytest
from command import ScriptedModel
from tiny import tiny_llama, tiny_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_llama(max_position_embeddings=2048, seed=5).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def evaluate(model, tmp_path, capsys):
    """Runs the command on the tiny model into `tmp_path/out`; returns (exit status, stdout, stderr)."""

    def call(*arguments, name=str(model), output_dir=tmp_path / "out"):
        from numsft.evaluation.__main__ import main

        head = [name] if name is not None else []
        status = main([*head, *map(str, arguments), "--output_dir", str(output_dir)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def scripted(monkeypatch):
    """A model that knows GSM8K's first four: by program, by program that fails, by reasoning, not at all."""
    from numsft.evaluation import engine as engines
    from numsft.evaluation.benchmarks import load_questions
    from numsft.evaluation.prompts import prompt

    questions = load_questions("gsm8k", limit=4)
    texts = [
        (f" x = {questions[0].gold}\nprint(x)", None),
        (" print(1 / 0)", f" The answer is {questions[1].gold}."),
        (" I would rather not say", f" so the answer is {questions[2].gold}"),
        (" print('none')", " no idea"),
    ]
    answers = {}
    for question, pair in zip(questions, texts, strict=True):
        answers.update(
            {prompt(question, form): text for form, text in zip(("pot", "cot"), pair, strict=True)}
        )
    lm = ScriptedModel(answers)
    made = engines.Engine(lm, tiny_tokenizer(), tiny_llama(max_position_embeddings=4096), window=2)
    monkeypatch.setattr(engines, "load_engine", lambda *_, **__: made)
    return lm
