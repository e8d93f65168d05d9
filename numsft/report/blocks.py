"""Generated parts of a Markdown file, between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

from __future__ import annotations


def with_block(text: str, name: str, content: str) -> str:
    """Return `text` with what stands between the markers of `name` replaced.

    Raises:
        ValueError: If a marker is missing.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"the text has no {begin} ... {end}: put the markers where the part belongs")
    return f"{before}{begin}\n{content}\n{end}{after}"
