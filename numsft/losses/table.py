"""The README's table of losses; `python -m numsft.losses.table README.md` rewrites it from the two dicts."""

from __future__ import annotations

import sys
from pathlib import Path

from numsft.losses import NUMBER_LOSSES, TOKEN_LOSSES
from numsft.report.blocks import with_block


def loss_table() -> str:
    """Return the table in Markdown: name, formula, default weight and places, minimum, cost, source."""
    rows = [
        "| loss | formula | default weight α | places | minimum | cost | source |",
        "|---|---|---|---|---|---|---|",
        "| **number losses** | | | | | | |",
    ]
    for name, number in NUMBER_LOSSES.items():
        weight = f"{number.default_weight:g} ({number.weight_source})"
        places = number.default_place_weighting
        rows.append(
            f"| `{name}` | {number.formula} | {weight} | {places} | {number.minimum} | {number.overhead} "
            f"| {number.source} |"
        )
    rows.append("| **token losses** | | | | | | |")
    for name, token in TOKEN_LOSSES.items():
        rows.append(
            f"| `{name}` | {token.formula} | – | – | {token.minimum} | {token.overhead} | {token.source} |"
        )
    return "\n".join(rows)


def with_table(text: str) -> str:
    """Return `text` with what stands between the markers replaced by the table."""
    return with_block(text, "losses", loss_table())


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_table(target.read_text(encoding="utf-8")), encoding="utf-8")
