"""A benchmark as lm-eval's task: our questions, prompts and rules; lm-eval's models, output and options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import datasets
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean
from lm_eval.api.task import ConfigurableTask

from numsft.errors import UserError
from numsft.evaluation.benchmarks import Question, kind_of, load_questions
from numsft.evaluation.bootstrap import intervals
from numsft.evaluation.metrics import ln_eps, read_pair
from numsft.evaluation.prompts import max_new_tokens, message, message_opening, prompt, stop_strings
from numsft.evaluation.run import may_be_program
from numsft.evaluation.runner import ProgramRunner
from numsft.evaluation.scoring import MODES, score_rows

Row = dict[str, Any]
KEYS = ("benchmark", "mode", "data_dir", "workers", "allow_no_sandbox")
"""What a task's metadata, and lm-eval's `--metadata`, may set."""


class BenchmarkTask(ConfigurableTask):  # type: ignore[misc]
    """One benchmark under one rule book.

    lm-eval fixes the requests before it generates, so an open question is asked for a program and for
    reasoning, and the second text counts only where the first gave no answer. Scores are those of
    `python -m numsft.evaluation`, at the price of a reasoning text for every question.

    Its metrics, of each question: `accuracy` and `answered` (0 or 1); on open benchmarks also `log_mae` (see
    `log_error`; null where gold or answer is no number), of which `log_mae_low` and `log_mae_high` are the
    ends of the 95 % bootstrap interval, since lm-eval has no error bar for a mean over some of the questions.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        """Load the questions.

        Args:
            config: Content of the task's YAML file; `metadata` holds `benchmark`, `mode` and may hold
                `data_dir`, `workers` and `allow_no_sandbox`.

        Raises:
            UserError: No such benchmark or mode, or its data are missing.
        """
        config = {key: value for key, value in (config or {}).items() if key != "class"}
        metadata = config.get("metadata") or {}
        self.settings = {key: metadata.get(key) for key in KEYS}
        self.benchmark, self.mode = str(self.settings["benchmark"]), str(self.settings["mode"])
        if self.mode not in MODES:
            raise UserError(f"the mode of {config.get('task')} is {self.mode!r}; expected strict or paper")
        choice = kind_of(self.benchmark) == "choice"
        self.forms = ("cot",) if choice else ("pot", "cot")
        self.metrics = SHARES if choice else SHARES | ERRORS
        self.questions: dict[int, Question] = {}
        self._scored: dict[tuple[Any, ...], Row] = {}
        generation = {
            "until": list(stop_strings(self.mode)),
            "max_gen_toks": max_new_tokens(self.benchmark),
            "do_sample": False,
        }
        config["unsafe_code"] = may_be_program(self.benchmark, self.mode)
        self.run_programs = ProgramRunner(self.settings["workers"], bool(self.settings["allow_no_sandbox"]))
        config["generation_kwargs"] = generation | (config.get("generation_kwargs") or {})
        config["metric_list"] = [
            {"metric": name, "aggregation": how, "higher_is_better": higher}
            for name, (how, higher) in self.metrics.items()
        ]
        config["process_results"] = "process_results"  # lm-eval then looks for no metric of these names
        super().__init__(config=config)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Read the questions, from `data_dir`, `NUMSFT_DATA_DIR` or the cache."""
        loaded = load_questions(self.benchmark, self.settings["data_dir"])
        self.questions = {question.index: question for question in loaded}
        self.dataset = {
            "test": datasets.Dataset.from_list(
                [{"index": q.index, "question": q.question, "gold": q.gold} for q in loaded]
            )
        }

    def doc_to_text(self, doc: Row, doc_to_text: Any = None) -> str:
        """The prompt of the first pass."""
        return prompt(self.questions[doc["index"]], self.forms[0])

    def doc_to_target(self, doc: Row, doc_to_target: Any = None) -> str:
        """The gold answer."""
        return str(doc["gold"])

    def build_all_requests(self, **options: Any) -> None:
        """Build them, once it is known that programs can be run: a refusal afterwards would cost hours."""
        if self.config.unsafe_code:
            self.run_programs.check()
        self._scored.clear()
        super().build_all_requests(**options)

    def fewshot_context(
        self,
        doc: Row,
        num_fewshot: int = 0,
        system_instruction: str | None = None,
        apply_chat_template: bool = False,
        chat_template: Callable[..., str] | None = None,
        **options: Any,
    ) -> dict[str, str]:
        """Return the prompt of each pass.

        Raises:
            UserError: If examples are wanted: the benchmarks are asked without.
        """
        if num_fewshot:
            raise UserError(f"num_fewshot is {num_fewshot}; the numsft tasks are asked without examples: 0")
        question = self.questions[doc["index"]]
        if not (apply_chat_template and chat_template):
            before = f"{system_instruction}\n\n" if system_instruction else ""
            return {form: before + prompt(question, form) for form in self.forms}
        system = [{"role": "system", "content": system_instruction}] if system_instruction else []
        return {
            form: chat_template([*system, {"role": "user", "content": message(question, form)}])
            + message_opening(question)
            for form in self.forms
        }

    def construct_requests(self, doc: Row, ctx: dict[str, str], **options: Any) -> list[Instance]:
        """One request a pass."""
        return [
            Instance(
                request_type="generate_until",
                doc=doc,
                arguments=(ctx[form], dict(self.config.generation_kwargs)),
                idx=number,
                metadata=options["metadata"],
            )
            for number, form in enumerate(self.forms)
        ]

    def apply_filters(self) -> Any:
        """Filter the texts, and score all of them at once: the only place where lm-eval hands over many."""
        filtered = super().apply_filters()
        if not self._predicts_only:
            documents: dict[Any, list[Instance]] = {}
            for instance in self._instances:
                documents.setdefault(instance.doc_id, []).append(instance)
            for name in self._instances[0].filtered_resps:
                self._score(
                    [
                        (group[0].doc, [i.filtered_resps[name] for i in sorted(group, key=lambda i: i.idx)])
                        for group in documents.values()
                    ]
                )
        return filtered

    def process_results(self, doc: Row, results: Sequence[str]) -> dict[str, Any]:
        """Return the metrics of one question."""
        if self._predicts_only:
            return {"bypass": 999}
        key = (doc["index"], *results)
        if key not in self._scored:
            self._score([(doc, results)])
        row = self._scored[key]
        values: dict[str, Any] = {"accuracy": float(row["correct"]), "answered": float(row["answered"])}
        return {name: values[name] if name in values else log_error(row) for name in self.metrics}

    def aggregation(self) -> dict[str, Callable[..., Any]]:
        """How the metrics of the questions become one number."""
        if self._predicts_only:
            return dict(super().aggregation())
        return {name: how for name, (how, _) in self.metrics.items()}

    def higher_is_better(self) -> dict[str, bool]:
        """Which metrics should rise."""
        return {name: higher for name, (_, higher) in self.metrics.items()}

    @property
    def _predicts_only(self) -> bool:
        return "bypass" in self._metric_fn_list

    def _score(self, documents: Sequence[tuple[Row, Sequence[str]]]) -> None:
        rows = [
            {"index": doc["index"], **dict(zip(self.forms, texts, strict=True))} for doc, texts in documents
        ]
        questions = [self.questions[row["index"]] for row in rows]
        for (doc, texts), row in zip(
            documents, score_rows(questions, rows, self.mode, self.run_programs), strict=True
        ):
            self._scored[(doc["index"], *texts)] = row


def log_error(row: Row) -> float | None:
    """Return |L(p) - L(g)| with L(x) = sgn(x) ln(|x| + 1e-8); None where gold or answer is no number."""
    gold, found = read_pair(row["gold"], row["extracted"], row["correct"]) or (None, None)
    return None if gold is None or found is None else abs(ln_eps(found.value) - ln_eps(gold.value))


def log_mae(errors: Sequence[float | None]) -> float | None:
    """Return the mean over the questions that have an error; None where none has."""
    there = [error for error in errors if error is not None]
    return sum(there) / len(there) if there else None


def log_mae_low(errors: Sequence[float | None]) -> float | None:
    """Return the low end of its 95 % interval, all questions resampled."""
    return _log_mae_end(errors, 0)


def log_mae_high(errors: Sequence[float | None]) -> float | None:
    """Return the high end of its 95 % interval."""
    return _log_mae_end(errors, 1)


def _log_mae_end(errors: Sequence[float | None], end: int) -> float | None:
    import numpy as np

    if log_mae(errors) is None:
        return None
    column = np.array([np.nan if error is None else error for error in errors])
    return float(intervals(column[:, None])[0, end])


Metrics = dict[str, tuple[Callable[..., Any], bool]]
SHARES: Metrics = {"accuracy": (mean, True), "answered": (mean, True)}
ERRORS: Metrics = {
    "log_mae": (log_mae, False),
    "log_mae_low": (log_mae_low, False),
    "log_mae_high": (log_mae_high, False),
}
