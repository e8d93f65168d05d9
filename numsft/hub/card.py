"""Model cards: what a trained model or adapter is, how it was made, and how to load it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peft import PeftModel

from numsft.hub.text import header_lines, loading_lines
from numsft.objective import Objective

if TYPE_CHECKING:
    from numsft.trainer import NumSFTTrainer

PACKAGES = ("numsft", "trl", "peft", "transformers", "datasets", "accelerate", "torch")
_SETTINGS = (
    "learning_rate lr_scheduler_type warmup_steps per_device_train_batch_size gradient_accumulation_steps "
    "num_train_epochs max_steps max_length packing optim weight_decay max_grad_norm bf16 seed"
).split()
"""Named in the card of a trainer that no recipe was read for."""
_METRICS = (
    "loss token_loss number_loss digit_accuracy digit_entropy digit_mass digit_logit mean_token_accuracy"
).split()


@dataclass
class CardFacts:
    """What the card says beyond what the trainer knows itself; `numsft.run` fills it in.

    Attributes:
        base_model: Hub id or path of the base; None takes the model's own.
        base_note: A sentence on the base's weights, such as that they are a dequantised copy.
        dataset: Name of the training data.
        recipe: The resolved recipe, YAML.
        results: A Markdown table of results.
    """

    base_model: str | None = None
    base_note: str = ""
    dataset: str | None = None
    recipe: str = ""
    results: str = ""
    tags: list[str] = field(default_factory=list)


def objective_lines(objective: Objective, n_classes: int | None) -> list[str]:
    """Describe the objective in Markdown: formula, losses, weight in both conventions, places, reduction.

    Args:
        objective: The losses.
        n_classes: C, for the class-mean convention of the weight; None where the tokenizer is not known.
    """
    lines = [f"* token loss: `{_with_options(objective.token_loss)}`, {objective.token_loss.formula}"]
    number = objective.number_loss
    if number is None:
        return ["`(1/N) Σ_tokens T`", "", *lines, "* number loss: none"]
    places = objective.place_weighting
    if objective.place_options:
        places += " " + json.dumps(objective.place_options)
    weight = f"{objective.weight:g} (class-sum units"
    weight += f"; {objective.weight * n_classes:g} in class-mean units)" if n_classes else ")"
    return [
        "`(1/N) Σ_tokens T + α (1/S) Σ_digits w R`",
        "",
        *lines,
        f"* number loss: `{_with_options(number)}`, {number.formula} ({number.source})",
        f"* weight α: {weight}",
        f"* place weighting: {places}",
        f"* reduction (S): {objective.reduction}",
    ]


def model_card(trainer: NumSFTTrainer, facts: CardFacts, name: str | None = None) -> str:
    """Return the card of a trainer's model as Markdown with a YAML header.

    Args:
        trainer: The trainer, at any moment of its training.
        facts: What it does not know itself.
        name: Repository or folder that the card's code loads; None takes `hub_model_id`, else the output
            folder.
    """
    adapter = isinstance(trainer.model, PeftModel)
    base = facts.base_model or trainer.model.config.name_or_path or None
    name = trainer.args.hub_model_id or name or str(trainer.args.output_dir)
    kind = "LoRA adapter" if adapter else "fine-tuned model"
    of_base = f" of `{base}`" if base else ""
    lines = [*header_lines(_header(adapter, base, facts)), "", f"# {Path(name).name}", ""]
    lines += [f"A {kind}{of_base}, trained with a digit-aware loss by numsft (TRL, PEFT)."]
    lines += [facts.base_note] if facts.base_note else []
    lines += ["", "## Objective", "", "One optimiser step minimises"]
    lines += objective_lines(trainer.objective, len(trainer.vocab.token_ids) or None)
    lines += ["", "## Training", "", f"* data: `{facts.dataset or 'not recorded'}`"]
    lines += [f"* optimiser steps: {trainer.state.global_step} of {trainer.state.max_steps}"]
    lines += _metric_lines(trainer)
    if facts.results:
        lines += ["", "## Results", "", facts.results]
    lines += ["", "## How to load", "", *loading_lines(name, base, adapter=adapter)]
    if facts.recipe:
        lines += ["", "## Recipe", "", "```yaml", facts.recipe.strip(), "```"]
    else:
        lines += ["", "## Settings", "", *(f"* {key}: {getattr(trainer.args, key)}" for key in _SETTINGS)]
    lines += ["", "## Versions", "", ", ".join(f"{package} {_version(package)}" for package in PACKAGES)]
    return "\n".join(lines) + "\n"


def write_model_card(trainer: NumSFTTrainer, folder: str | Path | None = None) -> None:
    """Write `README.md` into `folder` (the output folder where None)."""
    folder = Path(folder or str(trainer.args.output_dir))
    folder.mkdir(parents=True, exist_ok=True)
    text = model_card(trainer, trainer.card, name=str(folder))
    (folder / "README.md").write_text(text, encoding="utf-8")


def _header(adapter: bool, base: str | None, facts: CardFacts) -> dict[str, Any]:
    """The metadata that the Hub reads; it refuses a card whose base or data is not a Hub id."""
    header: dict[str, Any] = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": sorted({"trl", "sft", "numsft", *(["lora"] if adapter else []), *facts.tags}),
    }
    if base and _is_hub_id(base):
        header["base_model"] = base
        header["base_model_relation"] = "adapter" if adapter else "finetune"
    if facts.dataset and "/" in facts.dataset and _is_hub_id(facts.dataset):
        header["datasets"] = [facts.dataset]
    return header


def _is_hub_id(name: str) -> bool:
    shaped = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name)
    return bool(shaped) and not name.endswith((".json", ".jsonl", ".parquet")) and not Path(name).exists()


def _with_options(loss: Any) -> str:
    options = ", ".join(f"{f.name}={getattr(loss, f.name)!r}" for f in fields(loss))
    return f"{loss.name}({options})" if options else loss.name


def _metric_lines(trainer: NumSFTTrainer) -> list[str]:
    """The newest value of every training and evaluation metric in the log."""
    newest: dict[str, float] = {}
    for entry in trainer.state.log_history:
        newest |= {key: value for key, value in entry.items() if isinstance(value, (int, float))}
    return [
        f"* {prefix}{name}: {newest[prefix + name]:.4g}"
        for prefix in ("", "eval_")
        for name in _METRICS
        if prefix + name in newest
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
