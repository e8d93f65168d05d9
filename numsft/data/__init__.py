"""From a recipe's data keys to prompt/completion datasets: read, adapt, hold out.

`read.py` opens the file or the Hub dataset, `adapters.py` turns its columns into prompt and completion,
`prompts.py` puts the template around them; this file decides which rows are trained on and which are held
out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from datasets import Dataset

from numsft.data.adapters import NUPA, Adapter, adapt, choose_adapter
from numsft.data.prompts import ALPACA, check_template, render
from numsft.data.read import Source, open_source
from numsft.data.split import KEY, eval_rows, hold_out, prompt_key, without
from numsft.errors import UserError
from numsft.evaluation.nupa import generate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from numsft.config import DataConfig

__all__ = ["ALPACA", "Datasets", "HeldOut", "last_number", "load_datasets", "prompt_key"]

NUPA_DEFAULT_TASKS = ("integer_add", "integer_subtract", "integer_multiply", "float_add", "float_subtract")
NUPA_DEFAULT_SIZE = 10_000
_NUPA_EVALUATION_ROWS = 500
_NUMBER = re.compile(r"(?:(?<![\w)])-)?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)")


@dataclass(frozen=True)
class HeldOut:
    """An item generated before and after training: the prompt as the model reads it, and its number."""

    prompt: str
    gold: str


@dataclass(frozen=True)
class Datasets:
    """What a run trains on and is judged by.

    Attributes:
        train: Columns `prompt` and `completion`, both text or both message lists.
        evaluation: The same, sharing no prompt with `train`; None where nothing is held out for it.
        held_out: The `before_after` items; none of their prompts is in `train`.
        notes: One line for each thing worth knowing (the adapter chosen, rows left out).
    """

    train: Dataset
    evaluation: Dataset | None
    held_out: tuple[HeldOut, ...]
    notes: tuple[str, ...]


def load_datasets(data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, seed: int = 0) -> Datasets:
    """Builds the training, evaluation and before/after sets that the recipe's data keys describe.

    Rows are held out by a hash of their prompt, so a prompt that occurs twice is on one side only, and
    appending rows to a file moves few others. With `eval_dataset`, training rows whose prompt it contains are
    left out. `max_samples` then takes the first of the training rows.

    Args:
        data: The recipe's data keys.
        tokenizer: Asked whether it has a chat template, and for the text of chat prompts.
        seed: Chooses the rows held out, each row's template where several are given, and the number items
            where `nupa_seed` is not set.

    Raises:
        UserError: A file, dataset, column, row or key that does not fit.
    """
    count = _positive(data.before_after, "before_after", least=0)
    if data.max_samples is not None:
        _positive(data.max_samples, "max_samples", least=1)
    if not data.dataset:
        raise UserError(
            "dataset is not set; expected nupa, a .json, .jsonl or .parquet file, or a Hub dataset"
        )
    if data.eval_dataset and data.eval_size:
        raise UserError(
            f"both eval_dataset ({data.eval_dataset}) and eval_size ({data.eval_size}) are set; keep "
            "one of them, eval_size to hold out training rows or eval_dataset for rows of its own"
        )
    notes: list[str] = []
    if data.dataset == "nupa":
        size = NUPA_DEFAULT_SIZE if data.nupa_size is None else data.nupa_size
        wanted = eval_rows(data.eval_size, size)
        train = _nupa(data, "train", size, tokenizer, seed, notes)
        evaluation, pool = None, train.select([])
        if wanted or count:
            pool = _nupa(data, "test", max(wanted, count), tokenizer, seed, notes)
            evaluation = pool.select(range(min(wanted, len(pool)))) if wanted else None
    else:
        train = _load(data, data.dataset, data.dataset_split, tokenizer, seed, notes)
        wanted = eval_rows(data.eval_size, len(train))
        evaluation, pool = None, train.select([])
        if not data.eval_dataset and (wanted or count):
            train, pool = hold_out(train, wanted or count, data, seed)
            evaluation = pool if wanted else None
    if data.eval_dataset == "nupa":
        evaluation = pool = _nupa(data, "test", max(count, _NUPA_EVALUATION_ROWS), tokenizer, seed, notes)
    elif data.eval_dataset:
        evaluation = pool = _load(data, data.eval_dataset, None, tokenizer, seed, notes)
    train = without(train, pool, data, notes)
    if data.max_samples is not None and data.max_samples < len(train):
        train = train.select(range(data.max_samples))
    gold = str.strip if (data.eval_dataset or data.dataset) == "nupa" else last_number
    held_out = _held_out(pool, count, gold, tokenizer, notes)
    return Datasets(
        train.remove_columns(KEY),
        evaluation.remove_columns(KEY) if evaluation is not None else None,
        held_out,
        tuple(notes),
    )


def last_number(text: str) -> str | None:
    """The last number of a text without its thousands commas, None where there is none."""
    found = _NUMBER.findall(text)
    return found[-1].replace(",", "") if found else None


def _load(
    data: DataConfig,
    name: str,
    split: str | None,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    notes: list[str],
) -> Dataset:
    source = open_source(name, data.dataset_config, split, fallback_split=data.dataset_split)
    adapter = choose_adapter(source, data.prompt_column, data.completion_column)
    dataset = _finished(source, adapter, data.prompt_template, tokenizer, seed)
    columns = "/".join(adapter.columns)
    template = data.prompt_template or adapter.template
    notes.append(f"{source.name}: {len(dataset)} rows from columns {columns}, prompt template {template!r}")
    return dataset


def _nupa(
    data: DataConfig,
    split: str,
    size: int,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    notes: list[str],
) -> Dataset:
    tasks = list(data.nupa_tasks or NUPA_DEFAULT_TASKS)
    _positive(size, "nupa_size", least=1)
    rows = generate(
        tasks, data.nupa_digits, size, split=split, seed=seed if data.nupa_seed is None else data.nupa_seed
    )
    shortage = f" of the {size} asked for: there are no more at these lengths" if len(rows) < size else ""
    notes.append(f"nupa: {len(rows)} {split} items{shortage}")
    if not rows:
        raise UserError(
            f"no {split} item exists for nupa_tasks {tasks} at nupa_digits "
            f"{list(data.nupa_digits)}; widen nupa_digits"
        )
    source = Source(f"nupa ({split})", None, lambda: ((f"item {i}", row) for i, row in enumerate(rows)))
    return _finished(source, NUPA, data.prompt_template, tokenizer, seed)


def _finished(
    source: Source,
    adapter: Adapter,
    template: str | list[str] | None,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
) -> Dataset:
    """The source's rows as prompt, completion and the hash of the prompt before its template."""
    _, first = next(iter(adapt(source, adapter)), ("", None))
    if first is None:
        raise UserError(f"{source.name} has no rows; expected at least one training example")
    conversational = not isinstance(first[0], str)
    templates = check_template(template, adapter, conversational, tokenizer)

    def examples() -> Iterable[dict[str, Any]]:
        for where, (prompt, completion) in adapt(source, adapter):
            if isinstance(prompt, str) == conversational:
                raise UserError(
                    f"{where} mixes text with message lists; expected the form of the first row throughout"
                )
            key = prompt_key(prompt)
            draw = Random(f"{seed}|{key}").getrandbits(32) if len(templates) > 1 else 0
            rendered = render(prompt, completion, templates, adapter, draw)
            yield {"prompt": rendered[0], "completion": rendered[1], KEY: key}

    chat = conversational or templates == ("chat",)
    identity = (adapter.columns, adapter.template, templates, seed)
    return source.build(examples, identity, chat=chat)


def _positive(value: Any, key: str, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{key} is {value!r}; expected a whole number of at least {least}")
    return value


def _held_out(
    pool: Dataset,
    count: int,
    gold_of: Callable[[str], str | None],
    tokenizer: PreTrainedTokenizerBase,
    notes: list[str],
) -> tuple[HeldOut, ...]:
    """The first `count` held-out rows whose completion has a number."""
    if not count:
        return ()
    items: list[HeldOut] = []
    for row in pool:
        prompt, completion = row["prompt"], row["completion"]
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        if (gold := gold_of(text)) is None:
            continue
        if not isinstance(prompt, str):
            prompt = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        items.append(HeldOut(str(prompt), gold))
        if len(items) == count:
            break
    if not items:
        raise UserError(
            f"before_after is {count}, but no held-out completion contains a number; set before_after to 0"
        )
    if len(items) < count:
        notes.append(f"before_after: {len(items)} items of the {count} asked for, all that are held out")
    return tuple(items)
