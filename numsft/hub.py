"""Model cards: what a trained model or adapter is, how it was made, and how to load it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peft import PeftModel

from numsft.objective import Objective

if TYPE_CHECKING:
    from numsft.trainer import NumSFTTrainer

PACKAGES = ("numsft", "trl", "peft", "transformers", "datasets", "accelerate", "torch")


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


def model_card(trainer: NumSFTTrainer, facts: CardFacts) -> str:
    """Return the card of a trainer's model as Markdown with a YAML header."""
    adapter = isinstance(trainer.model, PeftModel)
    base = facts.base_model or trainer.model.config.name_or_path or None
    header = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": sorted({"trl", "sft", "numsft", *(["lora"] if adapter else []), *facts.tags}),
    }
    if base and not Path(base).exists():
        header["base_model"] = base
    if facts.dataset and "/" in facts.dataset and not Path(facts.dataset).exists():
        header["datasets"] = [facts.dataset]
    name = Path(trainer.args.hub_model_id or str(trainer.args.output_dir)).name
    kind = "LoRA adapter" if adapter else "fine-tuned model"
    lines = ["---", *_yaml_lines(header), "---", "", f"# {name}", ""]
    of_base = f" of `{base}`" if base else ""
    lines += [f"A {kind}{of_base}, trained with a digit-aware loss by numsft (TRL, PEFT)."]
    lines += [facts.base_note] if facts.base_note else []
    lines += ["", "## Objective", "", "One optimiser step minimises"]
    lines += objective_lines(trainer.objective, len(trainer.vocab.token_ids) or None)
    lines += ["", "## Training", "", f"* data: `{facts.dataset or 'not recorded'}`"]
    lines += [f"* optimiser steps: {trainer.state.global_step} of {trainer.state.max_steps}"]
    lines += _metric_lines(trainer)
    if facts.results:
        lines += ["", "## Results", "", facts.results]
    lines += ["", "## How to load", "", *_loading(adapter, base, trainer)]
    if facts.recipe:
        lines += ["", "## Recipe", "", "```yaml", facts.recipe.strip(), "```"]
    lines += ["", "## Versions", "", ", ".join(f"{package} {_version(package)}" for package in PACKAGES)]
    return "\n".join(lines) + "\n"


def write_model_card(trainer: NumSFTTrainer, folder: str | Path | None = None) -> None:
    """Write `README.md` into `folder` (the output folder where None)."""
    folder = Path(folder or str(trainer.args.output_dir))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(model_card(trainer, trainer.card), encoding="utf-8")


def _with_options(loss: Any) -> str:
    options = ", ".join(f"{f.name}={getattr(loss, f.name)!r}" for f in fields(loss))
    return f"{loss.name}({options})" if options else loss.name


def _yaml_lines(header: dict[str, Any]) -> list[str]:
    lines = []
    for key, value in header.items():
        if isinstance(value, list):
            lines += [f"{key}:", *(f"- {item}" for item in value)]
        else:
            lines.append(f"{key}: {value}")
    return lines


def _metric_lines(trainer: NumSFTTrainer) -> list[str]:
    """The newest value of every training and evaluation metric in the log."""
    newest: dict[str, float] = {}
    for entry in trainer.state.log_history:
        newest |= {key: value for key, value in entry.items() if isinstance(value, (int, float))}
    shown = ("loss", "token_loss", "number_loss", "digit_accuracy", "digit_entropy", "mean_token_accuracy")
    return [
        f"* {prefix}{name}: {newest[prefix + name]:.4g}"
        for prefix in ("", "eval_")
        for name in shown
        if prefix + name in newest
    ]


def _loading(adapter: bool, base: str | None, trainer: NumSFTTrainer) -> list[str]:
    here = trainer.args.hub_model_id or "PATH_OR_HUB_ID_OF_THIS_FOLDER"
    if adapter:
        code = [
            "from peft import AutoPeftModelForCausalLM",
            "from transformers import AutoTokenizer",
            "",
            f'model = AutoPeftModelForCausalLM.from_pretrained("{here}")  # with its base, {base}',
            f'tokenizer = AutoTokenizer.from_pretrained("{here}")',
        ]
    else:
        code = [
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "",
            f'model = AutoModelForCausalLM.from_pretrained("{here}")',
            f'tokenizer = AutoTokenizer.from_pretrained("{here}")',
        ]
    return ["numsft is not needed.", "", "```python", *code, "```"]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
