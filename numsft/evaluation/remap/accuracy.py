"""Accuracy on remapped items among those solved before, paired with the control rewrite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Any

from numsft.errors import UserError
from numsft.evaluation import bootstrap

_Z = 1.959963984540054  # 97.5 % point of the normal distribution


def wilson_interval(successes: float, n: int) -> tuple[float, float]:
    """Returns the 95 % Wilson score interval of a proportion, (0, 1) where `n` is 0.

    Source: Wilson (1927), "Probable inference, the law of succession, and statistical inference".
    """
    if n == 0:
        return (0.0, 1.0)
    share, z2 = successes / n, _Z * _Z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low = 0.0 if successes == 0 else centre - half  # exact where rounding would leave 1e-18
    high = 1.0 if successes == n else centre + half
    return (low, high)


def mcnemar(pairs: Iterable[tuple[bool, bool]]) -> dict[str, float]:
    """Returns McNemar's exact two-sided test of paired outcomes: `a_only`, `b_only` and `p`."""
    pairs = list(pairs)
    a_only = sum(a and not b for a, b in pairs)
    b_only = sum(b and not a for a, b in pairs)
    return {"a_only": a_only, "b_only": b_only, "p": bootstrap.mcnemar(a_only, b_only)}


def remap_accuracy(
    original_rows: Iterable[Mapping[str, Any]], remap_rows: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Compares a model's accuracy on remapped items and on their controls, among the items it solved before.

    An item's accuracy is the mean over its variants, and the intervals count items, since the variants of one
    item are not independent. McNemar's test takes one pair an item: the first variant with both kinds.

    Args:
        original_rows: Scored originals, with `index` and `correct`; the rows' other keys are ignored. Of
            several rows of an index all must be correct for the item to count as solved.
        remap_rows: Scored variants, with `index`, `variant`, `kind` (`remap` or `control`) and `correct`.

    Returns:
        `n_items` (those with variants), `n_solved`, `original_accuracy` over `n_items`; `remap` and `control`
        with `n_items`, `n_rows`, `accuracy`, `ci95` (Wilson), `drop` (1 - accuracy, since all were solved);
        `difference` (control minus remap over the items that have both) and `mcnemar` (a: remap, b: control).
        Accuracies are 0 to 1, None where there is nothing to count.

    Raises:
        UserError: If a row lacks a key, a variant stands twice, or a variant's original was not scored.
    """
    solved: dict[int, bool] = {}
    for row in original_rows:
        index, correct = _fields(row, "an original row", "index", "correct")
        solved[index] = solved.get(index, True) and bool(correct)
    outcomes: dict[str, dict[int, dict[int, bool]]] = {
        "remap": defaultdict(dict),
        "control": defaultdict(dict),
    }
    items = set()
    for row in remap_rows:
        index, variant, kind, correct = _fields(row, "a remap row", "index", "variant", "kind", "correct")
        if kind not in outcomes:
            raise UserError(f"a remap row's kind is {kind!r}; expected remap or control.")
        if index not in solved:
            raise UserError(f"item {index} has a variant but no original row; score the originals as well.")
        if variant in outcomes[kind][index]:
            raise UserError(f"variant {variant} ({kind}) of item {index} stands twice; give each row once.")
        outcomes[kind][index][variant] = bool(correct)
        items.add(index)
    n_solved = sum(solved[index] for index in items)
    means = {
        kind: {
            index: sum(rows.values()) / len(rows) for index, rows in by_item.items() if solved[index] and rows
        }
        for kind, by_item in outcomes.items()
    }
    result: dict[str, Any] = {
        "n_items": len(items),
        "n_solved": n_solved,
        "original_accuracy": n_solved / len(items) if items else None,
    }
    for kind, by_item in means.items():
        accuracy = sum(by_item.values()) / len(by_item) if by_item else None
        result[kind] = {
            "n_items": len(by_item),
            "n_rows": sum(len(outcomes[kind][index]) for index in by_item),
            "accuracy": accuracy,
            "ci95": wilson_interval(sum(by_item.values()), len(by_item)),
            "drop": None if accuracy is None else 1 - accuracy,
        }
    both = sorted(means["remap"].keys() & means["control"].keys())
    differences = [means["control"][index] - means["remap"][index] for index in both]
    result["difference"] = sum(differences) / len(differences) if differences else None
    pairs = []
    for index in both:
        remapped, controls = outcomes["remap"][index], outcomes["control"][index]
        if shared := sorted(remapped.keys() & controls.keys()):
            pairs.append((remapped[shared[0]], controls[shared[0]]))
    result["mcnemar"] = mcnemar(pairs)
    return result


def _fields(row: Mapping[str, Any], what: str, *names: str) -> list[Any]:
    if missing := [name for name in names if name not in row]:
        raise UserError(
            f"{what} has no {missing[0]!r} (it has {', '.join(row)}); expected {', '.join(names)}."
        )
    return [row[name] for name in names]
