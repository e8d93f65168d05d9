"""From a model to scored rows: two passes, the backup only where the first gave no answer."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.ask import Asker, entropies, key_of
from numsft.evaluation.benchmarks import Question, kind_of, load_questions
from numsft.evaluation.generate import fingerprint
from numsft.evaluation.nupa import benchmark as nupa
from numsft.evaluation.options import Options
from numsft.evaluation.output import read_rows
from numsft.evaluation.remap import benchmark as remap
from numsft.evaluation.runner import ProgramRunner
from numsft.evaluation.scores import scores
from numsft.evaluation.scoring import needs_backup, rescore, score_rows
from numsft.evaluation.store import SampleStore
from numsft.models import ModelSource, find_model

Row = dict[str, Any]
_PASSES = {"pot": "program", "cot": "reasoning"}


def evaluate(options: Options) -> tuple[list[Row], dict[str, Any]]:
    """Ask the model all questions that `output_dir` has no answer to, and score them.

    Returns:
        The scored rows in the order of the benchmarks' files, and the content of `scores.json`.

    Raises:
        UserError: For a benchmark, file, model or setting that does not fit, before anything is generated.
    """
    questions = {
        name: load_questions(name, options.data_dir, limit=options.limit)
        for name in options.benchmarks
        if name != "nupa"
    }
    variants = remap.read_variants(options.remap, options.limit) if options.remap else []
    for question in remap.questions(variants):
        questions.setdefault(question.benchmark, []).append(question)
    number_tasks: list[Row] = []
    if "nupa" in options.benchmarks:
        number_tasks = nupa.questions(options.nupa_per_length, options.nupa_seed, options.limit)
    run_programs = ProgramRunner(options.workers, options.allow_no_sandbox)
    if any(may_be_program(name, options.mode) for name in questions):
        run_programs.check()
    source = find_model(options.model, options.gguf_file)
    template = options.prompt_template or _template_of(source.adapter) or "alpaca"
    store = SampleStore(options.output_dir, _settings(options, source, template, questions, number_tasks))
    ask = Asker(options, template, store)

    first = {name: "cot" if kind_of(name) == "choice" else "pot" for name in questions}
    requests = {name: ask.requests(group, first[name]) for name, group in questions.items()}
    number_requests = ask.number_requests(number_tasks)
    # The backup's prompts are shorter than the first pass's.
    ask.refuse_what_does_not_fit(
        [*((requests[name], first[name]) for name in questions), (number_requests, "cot")]
    )
    for name, field in first.items():
        ask.complete(requests[name], field, f"{name} ({_PASSES[field]})")
    ask.complete(number_requests, "cot", "nupa")

    asked = [question for group in questions.values() for question in group]
    for question in asked:  # the paper's rules, asked later, then cut the text where the paper would have
        store.rows[key_of(question)]["stop_rules"] = options.mode
    for variant in variants:
        origin = {field: variant[field] for field in remap.ORIGIN}
        store.rows[(variant["benchmark"], variant["index"])].update(origin)
    rows = score_rows(asked, [store.rows[key_of(q)] for q in asked], options.mode, run_programs)
    unanswered = [question for question, row in zip(asked, rows, strict=True) if needs_backup(row)]
    if unanswered:
        store.add(rows)  # a program's output is not lost with the second pass
        ask.complete(ask.requests(unanswered, "cot"), "cot", f"backup ({_PASSES['cot']})")
        again = [store.rows[key_of(question)] for question in unanswered]
        rescored = score_rows(unanswered, again, options.mode, run_programs)
        by_key = {(row["benchmark"], row["index"]): row for row in rescored}
        rows = [by_key.get((row["benchmark"], row["index"]), row) for row in rows]
    answers = [task | {"cot": store.rows[("nupa", task["index"])]["cot"]} for task in number_tasks]
    rows += nupa.score_rows(answers)
    store.finish(rows)
    found = entropies(ask, rows, asked) if options.entropy else {}
    settings = {key: value for key, value in store.settings.items() if key != "mode"}
    result = scores(rows, options.mode, isolation=run_programs.isolation, settings=settings, entropies=found)
    return rows, _with_remap(result, rows)


def rescore_samples(
    path: Path,
    output_dir: Path,
    mode: str = "strict",
    data_dir: str | None = None,
    workers: int | None = None,
    allow_no_sandbox: bool = False,
) -> tuple[list[Row], dict[str, Any]]:
    """Score the texts of a samples file again.

    Args:
        path: The file, or its folder.
        output_dir: Where the scores will go.
        mode: `"strict"` or `"paper"`.
        data_dir: Folder of the benchmark files, for rows without question or gold.
        workers: Programs at a time.
        allow_no_sandbox: Run programs also where they cannot be isolated.

    Returns:
        The scored rows and the content of `scores.json`.

    Raises:
        UserError: If the file holds no such rows, or `output_dir` the samples of another run.
    """
    given = read_rows(path)
    file = path / "samples.jsonl" if path.is_dir() else path
    theirs = output_dir / "samples.jsonl"
    if theirs.exists() and (output_dir / "settings.json").exists() and not theirs.samefile(file):
        raise UserError(f"{output_dir} holds the samples of another run: name another --output_dir")
    seen = Counter(
        (str(row.get("benchmark")), row["index"]) for row in given if isinstance(row.get("index"), int)
    )
    for (name, index), times in seen.most_common(1):
        if times > 1:
            raise UserError(
                f"{file} has row {index} of {name} {times} times; expected one line a question: finish a run "
                "that was stopped with its own command first"
            )
    number_tasks = [row for row in given if row.get("benchmark") == "nupa"]
    others = [row for row in given if row.get("benchmark") != "nupa"]
    run_programs = ProgramRunner(workers, allow_no_sandbox)
    rows = rescore(others, mode, data_dir, run_programs) + nupa.score_rows(number_tasks)
    lacking = sum(row["benchmark"] != "nupa" and needs_backup(row) for row in rows)
    if lacking:
        print(
            f"{lacking} questions have no answer in the first pass and no text of the backup pass: "
            "they count as unanswered",
            file=sys.stderr,
        )
    result = scores(rows, mode, isolation=run_programs.isolation, settings={"rescored": file.name})
    return rows, _with_remap(result, rows)


def _with_remap(result: Row, rows: Sequence[Row]) -> Row:
    """The scores, and where remapped questions were asked what `remap.summary` says of them."""
    remapped = [row for row in rows if row["benchmark"] in remap.BENCHMARKS.values()]
    return result | {"remap": remap.summary(remapped)} if remapped else result


def may_be_program(benchmark: str, mode: str) -> bool:
    """Whether a text may be run: only the strict rules read every multiple-choice text as prose."""
    return mode == "paper" or kind_of(benchmark) != "choice"


def _template_of(adapter: Path | None) -> str | None:
    """The prompt template that an adapter was trained with, where questions can be asked in it."""
    from numsft.recipe_yaml import plain, read_mapping

    recipe = adapter / "resolved.yaml" if adapter else None
    if recipe is None or not recipe.is_file():
        return None
    template = plain(read_mapping(recipe)).get("prompt_template")
    return template if template in ("alpaca", "chat") else None


def _settings(
    options: Options,
    source: ModelSource,
    template: str,
    questions: dict[str, list[Question]],
    number_tasks: Sequence[Row],
) -> dict[str, Any]:
    """Everything that the answers depend on. The batch size is not among it, nor the data's place."""
    digests = {
        name: _digest([[question.question, question.gold] for question in group])
        for name, group in questions.items()
    }
    if number_tasks:
        digests["nupa"] = _digest([[row["question"], row["gold"]] for row in number_tasks])
    return {
        "model": os.path.normpath(options.model) if Path(options.model).exists() else options.model,
        "weights": fingerprint(source.path) + (fingerprint(source.adapter) if source.adapter else ""),
        "gguf_file": source.gguf_file,
        "mode": options.mode,
        "backend": options.backend,
        "dtype": options.dtype,
        "prompt_template": template,
        "max_new_tokens": options.max_new_tokens,
        "limit": options.limit,
        "questions": digests,
    }


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
