"""From a model to scored rows: two passes, the backup only where the first gave no answer."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numsft.errors import UserError
from numsft.evaluation.benchmarks import Question, kind_of, load_questions
from numsft.evaluation.generate import Request, complete, fingerprint
from numsft.evaluation.nupa import benchmark as nupa
from numsft.evaluation.prompts import max_new_tokens, prompt, stop_strings
from numsft.evaluation.scores import scores
from numsft.evaluation.scoring import needs_backup, score_rows
from numsft.evaluation.store import Key, SampleStore
from numsft.models import find_model, load_tokenizer

if TYPE_CHECKING:
    from numsft.evaluation.engine import Engine
    from numsft.evaluation.sandbox import Isolation

Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What is evaluated and how; the command line's flags of the same names say what each is.

    `prompt_template` is `"alpaca"`, `"chat"` or `"none"`; None takes the one that the adapter's recipe names,
    where it is one of these, else `"alpaca"`.
    """

    model: str
    benchmarks: tuple[str, ...]
    output_dir: Path
    mode: str = "strict"
    backend: str = "hf"
    data_dir: str | None = None
    limit: int | None = None
    batch_size: int = 16
    max_new_tokens: int | None = None
    gguf_file: str | None = None
    dtype: str = "auto"
    workers: int | None = None
    allow_no_sandbox: bool = False
    prompt_template: str | None = None
    nupa_per_length: int = 1
    nupa_seed: int = 0
    entropy: bool = True


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
    number_tasks: list[Row] = []
    if "nupa" in options.benchmarks:
        number_tasks = nupa.questions(options.nupa_per_length, options.nupa_seed, options.limit)
    sandbox = None
    if any(kind_of(name) != "choice" for name in questions):
        sandbox = check_sandbox(options.allow_no_sandbox)
    run_programs = program_runner(options.workers, options.allow_no_sandbox)
    source = find_model(options.model, options.gguf_file)
    template = options.prompt_template or _template_of(source.adapter) or "alpaca"
    store = SampleStore(options.output_dir, _settings(options, template, questions, number_tasks))
    ask = _Asker(options, template, store)

    asked = [question for group in questions.values() for question in group]
    first = {True: "cot", False: "pot"}
    for name, group in questions.items():
        ask(group, first[kind_of(name) == "choice"], name)
    ask.number_tasks(number_tasks)
    for question in asked:  # the paper's rules, asked later, then cut the text where the paper would have
        store.rows[key_of(question)]["stop_rules"] = options.mode
    rows = score_rows(asked, [store.rows[key_of(q)] for q in asked], options.mode, run_programs)
    store.add(rows)  # a program's output is not lost with the second pass
    unanswered = [question for question, row in zip(asked, rows, strict=True) if needs_backup(row)]
    if unanswered:
        ask(unanswered, "cot", "backup")
        again = [store.rows[key_of(question)] for question in unanswered]
        rescored = score_rows(unanswered, again, options.mode, run_programs)
        by_key = {(row["benchmark"], row["index"]): row for row in rescored}
        rows = [by_key.get((row["benchmark"], row["index"]), row) for row in rows]
    answers = [task | {"cot": store.rows[("nupa", task["index"])]["cot"]} for task in number_tasks]
    rows += nupa.score_rows(answers)
    entropies = _entropies(ask, rows, asked) if options.entropy else {}
    store.finish(rows)
    settings = {key: value for key, value in store.settings.items() if key != "mode"}
    result = scores(rows, options.mode, isolation=sandbox, settings=settings, entropies=entropies)
    return rows, result


def check_sandbox(allow_no_sandbox: bool) -> Isolation:
    """Return what isolation model-written programs get here.

    Raises:
        UserError: If it is none and that was not allowed.
    """
    from numsft.evaluation.sandbox import isolation

    found = isolation()
    if found.level == "none" and not allow_no_sandbox:
        raise UserError(
            "model-written programs cannot be isolated on this machine (no user namespaces, no Landlock): "
            "evaluate on a Linux kernel that has one of them, or accept the risk with --allow_no_sandbox"
        )
    return found


def program_runner(workers: int | None, allow_no_sandbox: bool) -> Callable[[Sequence[str]], Any]:
    """Return what runs a batch of programs in the sandbox."""
    from numsft.evaluation.sandbox import run_programs

    return functools.partial(run_programs, workers=workers, allow_no_sandbox=allow_no_sandbox)


def key_of(question: Question) -> Key:
    """Return benchmark and index."""
    return question.benchmark, question.index


class _Asker:
    """Generates what is missing; the model is loaded when there is something to ask."""

    def __init__(self, options: Options, template: str, store: SampleStore) -> None:
        self.options = options
        self.template = template
        self.store = store
        self.generated = 0
        self._tokenizer = load_tokenizer(options.model, options.gguf_file) if template == "chat" else None

    @functools.cached_property
    def engine(self) -> Engine:
        from numsft.evaluation.engine import load_engine

        options = self.options
        return load_engine(
            options.model,
            options.backend,
            gguf_file=options.gguf_file,
            dtype=options.dtype,
            batch_size=options.batch_size,
        )

    def prompt(self, question: Question, form: str) -> str:
        return prompt(question, form, self.template, self._tokenizer)

    def __call__(self, questions: Sequence[Question], form: str, label: str) -> None:
        """Fill the field `form` of the questions' rows."""
        stop = stop_strings(self.options.mode)
        self._complete(
            [
                Request(
                    key_of(question),
                    self.prompt(question, form),
                    stop,
                    self.options.max_new_tokens or max_new_tokens(question.benchmark),
                )
                for question in questions
            ],
            form,
            f"{label} ({'program' if form == 'pot' else 'reasoning'})",
        )

    def number_tasks(self, rows: Sequence[Row]) -> None:
        """Fill `cot` of NUPA's rows."""
        limit = self.options.max_new_tokens
        self._complete(
            [
                Request(
                    ("nupa", row["index"]),
                    self.number_prompt(row),
                    nupa.STOP,
                    limit or nupa.longest_answer(row),
                )
                for row in rows
            ],
            "cot",
            "nupa",
        )

    def number_prompt(self, row: Row) -> str:
        """A number task is asked as it is trained: bare, or as a chat message."""
        if self.template != "chat":
            return str(row["question"])
        return self.prompt(Question("nupa", row["index"], row["question"], row["gold"]), "cot")

    def _complete(self, requests: Sequence[Request], field: str, label: str) -> None:
        if any(self.store.rows.get(request.key, {}).get(field) is None for request in requests):
            self.generated += complete(self.engine, requests, field, self.store, label)


def _template_of(adapter: Path | None) -> str | None:
    """The prompt template that an adapter was trained with, where questions can be asked in it."""
    from numsft.recipe_yaml import plain, read_mapping

    recipe = adapter / "resolved.yaml" if adapter else None
    if recipe is None or not recipe.is_file():
        return None
    template = plain(read_mapping(recipe)).get("prompt_template")
    return template if template in ("alpaca", "chat") else None


def _settings(
    options: Options, template: str, questions: dict[str, list[Question]], number_tasks: Sequence[Row]
) -> dict[str, Any]:
    """Everything that the answers depend on. The batch size is not among it, nor the data's place."""
    source = find_model(options.model, options.gguf_file)
    digests = {
        name: _digest([[question.question, question.gold] for question in group])
        for name, group in questions.items()
    }
    if number_tasks:
        digests["nupa"] = _digest([[row["question"], row["gold"]] for row in number_tasks])
    return {
        "model": options.model,
        "weights": fingerprint(source.path) + fingerprint(source.adapter or ""),
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


def _entropies(ask: _Asker, rows: Sequence[Row], asked: Sequence[Question]) -> dict[str, dict[str, Any]]:
    """How sure the model was at digits and elsewhere, in what it wrote and in the gold answers.

    Where nothing was generated now, those of the earlier run are taken: the model need not be loaded.
    """
    names = dict.fromkeys(row["benchmark"] for row in rows)
    if not ask.generated:
        earlier = _earlier_entropies(ask.options.output_dir)
        if earlier.keys() >= names.keys():
            return earlier
    if ask.options.backend != "hf":
        print("entropies are left out: only the hf backend has the logits", file=sys.stderr)
        return {}
    from numsft.evaluation.entropy import token_entropies

    found: dict[str, dict[str, Any]] = {}
    for name in names:
        group = [row for row in rows if row["benchmark"] == name]
        lookup = {key_of(question): question for question in asked}
        prompts: dict[str, list[str]] = {"generated": [], "teacher_forced": []}
        texts: dict[str, list[str]] = {"generated": [], "teacher_forced": []}
        for row in group:
            question = lookup.get((name, row["index"]))
            for form in ("pot", "cot"):
                if row.get(form):
                    prompts["generated"].append(
                        ask.prompt(question, form) if question else ask.number_prompt(row)
                    )
                    texts["generated"].append(row[form])
            plain = ask.prompt(question, "cot") if question else ask.number_prompt(row)
            prompts["teacher_forced"].append(plain)
            texts["teacher_forced"].append(f" The answer is {row['gold']}" if question else row["gold"])
        found[name] = {
            text: token_entropies(
                ask.engine.model,
                ask.engine.tokenizer,
                prompts[text],
                texts[text],
                ask.options.batch_size,
                add_special_tokens=ask.template != "chat",
            )
            for text in prompts
        }
    return found


def _earlier_entropies(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        benchmarks = json.loads((folder / "scores.json").read_text(encoding="utf-8"))["benchmarks"]
        return {name: entry["entropy"] for name, entry in benchmarks.items() if "entropy" in entry}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
