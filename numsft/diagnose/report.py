"""The figures of a diagnosis as a dictionary (`diagnose.json`) and as the lines that are printed."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from numsft.diagnose.embeddings import DigitMap, digit_ids
from numsft.diagnose.measure import LossEffect, Readings
from numsft.losses.base import NumberLoss
from numsft.models import ModelSource
from numsft.numerals import NumberVocab
from numsft.objective import Objective

LEAST_LEVEL = 1.0
"""Mean digit logit below which a loss on raw logits can push the right digit down."""


def figures(
    source: ModelSource,
    text: str,
    vocab: NumberVocab,
    objective: Objective,
    readings: Readings,
    effect: LossEffect | None,
    maps: dict[str, DigitMap | None] | None,
) -> dict[str, Any]:
    """Return the content of `diagnose.json`; the package's docstring says what each key holds."""
    logits = readings.logits.double()
    result: dict[str, Any] = {
        "model": source.name,
        "base": source.base if source.adapter else None,
        "gguf_file": source.gguf_file,
        "vocabulary": {
            "kind": vocab.kind,
            "count": len(vocab.token_ids),
            "longest": int(vocab.lengths.max()),
            "digit_ids": digit_ids(vocab),
            "decimal_point_ids": vocab.decimal_point_ids.tolist(),
        },
        "text": {
            "source": text,
            "rows": readings.rows,
            "tokens": readings.tokens,
            "number_tokens": len(readings.classes),
            "numbers": readings.numbers,
        },
        "digit_logit": {
            "mean": logits.mean().item(),
            "std": logits.std(correction=0).item(),
            "min": logits.min().item(),
            "max": logits.max().item(),
        },
        "digit_mass": readings.log_mass.exp().double().mean().item(),
        "digit_accuracy": readings.correct.double().mean().item(),
        "number_loss": None if effect is None else _loss_figures(objective, effect),
        "entropy": {
            "digit": readings.entropy.double().mean().item(),
            "other": readings.other_entropy.double().mean().item() if len(readings.other_entropy) else None,
            "digit_subspace": readings.subspace_entropy.double().mean().item(),
            "digit_subspace_max": math.log(len(vocab.token_ids)),
        },
        "embeddings": None if maps is None else {name: _map_figures(one) for name, one in maps.items()},
        "warnings": [],
    }
    result["warnings"] = _warnings(result, objective.number_loss)
    return result


def _loss_figures(objective: Objective, effect: LossEffect) -> dict[str, Any]:
    loss = objective.number_loss
    assert loss is not None
    return {
        "name": loss.name,
        "options": asdict(loss),  # type: ignore[call-overload]
        "weight": objective.weight,
        "place_weighting": objective.place_weighting if loss.unit == "digit" else "none",
        "depends_on_level": loss.depends_on_level,
        "value": effect.value,
        "wrong_way": effect.wrong_way,
        "wrong_way_combined": effect.wrong_way_combined,
    }


def _map_figures(one: DigitMap | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "cosine": one.cosine.tolist(),
        "order_correlation": one.order_correlation,
        "projection": one.projection.tolist(),
        "explained": list(one.explained),
    }


def _warnings(result: dict[str, Any], loss: NumberLoss | None) -> list[str]:
    warnings = []
    level = result["digit_logit"]["mean"]
    if loss is not None and loss.depends_on_level and level < LEAST_LEVEL:
        remedy = "set its option `level`, or " if hasattr(loss, "level") else ""
        warnings.append(
            f"the mean digit logit is {level:.2f}, below {LEAST_LEVEL:g}, where {loss.name} can push the "
            f"right digit down: {remedy}choose a loss that does not depend on the level, such as digit_ce"
        )
    if result["embeddings"] is None:
        warnings.append("no digit_embeddings.png: the tokenizer lacks single-digit tokens for some of 0 to 9")
    return warnings


def lines(result: dict[str, Any]) -> list[str]:
    """Return the figures as a table, two columns, warnings last."""
    vocabulary, text, logit, entropy = (
        result[key] for key in ("vocabulary", "text", "digit_logit", "entropy")
    )
    model = result["model"] + (f" on {result['base']}" if result["base"] else "")
    ids = _ranges(vocabulary["digit_ids"]) if vocabulary["digit_ids"] else "not all of them single tokens"
    points = ", ".join(map(str, vocabulary["decimal_point_ids"])) or "none"
    kind = f"{vocabulary['count']} tokens, kind {vocabulary['kind']}, up to {vocabulary['longest']} digit"
    table = [
        ("model", model + (f" ({result['gguf_file']})" if result["gguf_file"] else "")),
        ("number vocabulary", kind + ("s" if vocabulary["longest"] > 1 else "")),
        ("ids of 0..9", ids),
        ("ids of the point", points),
        ("text", f"{text['source']}: {text['rows']} rows, {text['tokens']} predicted tokens"),
        ("", f"{text['number_tokens']} number tokens in {text['numbers']} numbers"),
        (
            "digit logit",
            f"{logit['mean']:.2f} ± {logit['std']:.2f}, from {logit['min']:.2f} to {logit['max']:.2f}",
        ),
        ("digit mass", f"{result['digit_mass']:.3f}"),
        ("digit accuracy", f"{result['digit_accuracy']:.1%}"),
    ]
    if loss := result["number_loss"]:
        places = f", places {loss['place_weighting']}"
        table += [
            (f"{loss['name']}", f"{loss['value']:.4f} (mean, weight {loss['weight']:g}{places})"),
            ("  pushes digit down", f"{loss['wrong_way']:.1%} of number positions"),
            (
                f"  ce + {loss['weight']:g} {loss['name']}",
                f"{loss['wrong_way_combined']:.1%} of number positions",
            ),
        ]
    other = "no such position" if entropy["other"] is None else f"{entropy['other']:.3f} nats"
    table += [
        ("entropy at digits", f"{entropy['digit']:.3f} nats"),
        ("  elsewhere", other),
        (
            "  of digits alone",
            f"{entropy['digit_subspace']:.3f} nats of at most {entropy['digit_subspace_max']:.3f}",
        ),
    ]
    for name, one in (result["embeddings"] or {}).items():
        if one:
            shown = {"input": "input embeddings", "lm_head": "LM head rows"}[name]
            table.append((shown, f"correlation of cosine with closeness {one['order_correlation']:.2f}"))
    width = max(len(left) for left, _ in table)
    return [f"{left:<{width}}  {right}" for left, right in table] + [
        f"warning: {w}" for w in result["warnings"]
    ]


def _ranges(ids: list[int]) -> str:
    consecutive = ids == list(range(ids[0], ids[0] + len(ids)))
    return f"{ids[0]}..{ids[-1]}" if consecutive else ", ".join(map(str, ids))
