"""The scores and comparisons as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numsft.evaluation.nupa.generate import RANGES

TITLES = {
    "gsm8k": "GSM8K",
    "math": "MATH",
    "math500": "MATH-500",
    "svamp": "SVAMP",
    "simuleq": "SimulEq",
    "aqua": "AQuA",
    "sat_math": "SAT-Math",
    "mmlu_math": "MMLU-math",
    "nupa": "NUPA",
}
_NOTHING = "–"


def scores_table(scores: Mapping[str, Any]) -> str:
    """Return a `scores.json` in Markdown: benchmarks, then places, entropy and NUPA where scored."""
    parts = [_benchmarks(scores)]
    benchmarks = scores["benchmarks"]
    numeric = {name: entry for name, entry in benchmarks.items() if entry.get("n_numeric")}
    if numeric:
        parts.append(_places(numeric))
    if any("entropy" in entry for entry in benchmarks.values()):
        parts.append(_entropy(benchmarks))
    if "remap" in scores:
        parts.append(_remap(scores["remap"]))
    if "nupa" in benchmarks:
        parts.append(_nupa(benchmarks["nupa"]))
    return "\n\n".join(parts) + "\n"


def compare_table(comparison: Mapping[str, Any], a: str = "A", b: str = "B") -> str:
    """Return the Markdown table of a `compare.json`, the two models named `a` and `b`."""
    header = [
        "benchmark",
        "n",
        a,
        b,
        f"{a} − {b} (95 %)",
        f"only {a}",
        f"only {b}",
        "McNemar p",
        "log-MAE (95 %)",
    ]
    rows = []
    for name, entry in comparison["benchmarks"].items():
        test, logs = entry["mcnemar"], entry["log_mae"]
        low, high = entry["ci95"]
        difference = _NOTHING
        if logs["difference"] is not None:
            ends = "{:+.3f} to {:+.3f}".format(*logs["ci95"])
            difference = f"{logs['difference']:+.3f} ({ends})"
        rows.append(
            [
                title(name),
                str(entry["n"]),
                _percent(entry["accuracy_a"]),
                _percent(entry["accuracy_b"]),
                f"{100 * entry['accuracy_difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})",
                str(test["a_only"]),
                str(test["b_only"]),
                f"{test['p']:.2g}",
                difference,
            ]
        )
    note = (
        "Differences of accuracy are in percentage points, of log-MAE in nats where both answered with a "
        "number; intervals are a paired bootstrap."
    )
    return f"{markdown(header, rows)}\n\n{note}\n"


def title(benchmark: str) -> str:
    """Return a benchmark's name as people write it."""
    return TITLES.get(benchmark, benchmark)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, first column left, the others right, padded so that it reads as plain text."""
    table = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join(padded) + " |"

    rule = (
        "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    )
    return "\n".join([line(table[0]), rule, *(line(row) for row in table[1:])])


def _benchmarks(scores: Mapping[str, Any]) -> str:
    header = ["benchmark", "n", "accuracy (95 %)", "answered", "by CoT", "coverage", "log-MAE (95 %)"]
    header += ["log10(1+x)", "median", "sign", "length"]
    rows = []
    for name, entry in scores["benchmarks"].items():
        low, high = entry["accuracy_ci95"]
        cells = [
            title(name),
            str(entry["n"]),
            f"{_percent(entry['accuracy'])} ({100 * low:.1f}–{100 * high:.1f})",
        ]
        cells += [
            _percent(entry["answered"]),
            _percent(entry.get("used_cot")),
            _percent(entry.get("coverage")),
        ]
        logs, ends = entry.get("log_mae", {}), entry.get("log_mae_ci95")
        cells.append(f"{logs['ln_eps']:.3f} ({ends[0]:.3f}–{ends[1]:.3f})" if ends else _NOTHING)
        cells += [_decimal(logs.get("log10p1")), _decimal(logs.get("ln1p_median"))]
        cells += [_percent(entry.get("sign_accuracy")), _percent(entry.get("length_accuracy"))]
        rows.append(cells)
    lines = [markdown(header, rows), "", f"Mode: {scores['mode']}. {_macc(scores)}"]
    if level := scores["sandbox"]["isolation"]:
        lines[-1] += f" Sandbox isolation: {level}."
    lines[-1] += (
        " log-MAE is of sgn(x)·ln(|x| + 1e-8), median of ln(1 + |x|), both where the answer was a number "
        "(coverage)."
    )
    return "\n".join(lines)


def _macc(scores: Mapping[str, Any]) -> str:
    if scores["macc"] is None:
        return "mACC: none of the paper's seven benchmarks was scored."
    return f"mACC {_percent(scores['macc'])}, the mean of {', '.join(map(title, scores['macc_over']))}."


def _places(benchmarks: Mapping[str, Any]) -> str:
    places = sorted({int(place) for entry in benchmarks.values() for place in entry["places"]}, reverse=True)
    header = ["MAE by place (n)", *(f"10^{place}" for place in places)]
    rows = []
    for name, entry in benchmarks.items():
        cells = [entry["places"].get(str(place), {"n": 0}) for place in places]
        rows.append(
            [title(name), *(f"{cell['mae']:.2f} ({cell['n']})" if cell["n"] else _NOTHING for cell in cells)]
        )
    return markdown(header, rows)


def _entropy(benchmarks: Mapping[str, Any]) -> str:
    header = ["entropy (nats)", "text", "digits (n)", "other tokens (n)", "digit subspace", "digit mass"]
    rows = []
    for name, entry in benchmarks.items():
        for text, means in entry.get("entropy", {}).items():
            cells = [title(name), text.replace("_", "-")]
            cells += [
                f"{_decimal(means[f'{kind}_entropy'])} ({means[f'{kind}_tokens']})"
                for kind in ("digit", "other")
            ]
            rows.append([*cells, _decimal(means["digit_subspace_entropy"]), _decimal(means["digit_mass"])])
    return markdown(header, rows)


def _remap(found: Mapping[str, Any]) -> str:
    lines = []
    for kind, name in (("remap", "other numbers"), ("control", "other words")):
        entry = found[kind]
        low, high = entry["ci95"]
        accuracy = "–" if entry["accuracy"] is None else f"{100 * entry['accuracy']:.1f} %"
        errors = found["errors"][kind]
        lines.append(
            [
                name,
                str(entry["n_items"]),
                f"{accuracy} ({100 * low:.1f}–{100 * high:.1f})",
                str(errors["arithmetic"]),
                str(errors["logical"]),
                str(errors["unchecked"]),
            ]
        )
    header = ["among the items solved as published", "items", "accuracy (95 %)", "arithmetic errors"]
    text = markdown([*header, "logical", "unchecked"], lines)
    share = found["original_accuracy"]
    solved = f"{found['n_solved']} of {found['n_items']}" + (f" ({100 * share:.1f} %)" if share else "")
    return f"{text}\n\n{solved} items solved as published; McNemar p {found['mcnemar']['p']:.2g}."


def _nupa(entry: Mapping[str, Any]) -> str:
    header = ["NUPA task", "n", *(f"exact {name}" for name in RANGES), "digit match", "dlength"]
    header += ["well learned to", "preserved to"]
    rows = []
    for name, cell in entry["tasks"].items():
        ranges = [cell["ranges"].get(part, {}).get("exact_match") for part in RANGES]
        row = [name, str(cell["n"]), *map(_percent, ranges), _percent(cell["digit_match"])]
        row += [f"{cell['dlength']:.2f}"]
        row += [
            str(cell[f"{kind}_length"] or _NOTHING) for kind in ("well_learned", "performance_preserving")
        ]
        rows.append(row)
    return markdown(header, rows)


def _percent(share: float | None) -> str:
    return _NOTHING if share is None else f"{share:.1%}"


def _decimal(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.3f}"
