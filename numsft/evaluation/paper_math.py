r"""The published string rules for MATH answers: the last box, and the normaliser of both sides."""

from __future__ import annotations

import re

_DELETED_FIRST = (("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"))
_DELETED_NEXT = (("\\left", ""), ("\\right", ""), ("^{\\circ}", ""), ("^\\circ", ""))


def boxed(text: str) -> str:
    """What stands behind the last "boxed": a braced group, or else the text up to a dollar sign."""
    rest = text.split("boxed")[-1]
    if not rest.startswith("{"):
        return rest.split("$")[0].strip()
    depth = 1
    for end, char in enumerate(rest[1:], start=1):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth == 0:
            return rest[1:end]
    return rest[1:]


def strip_string(text: str) -> str:
    """The normaliser of the MATH data set's authors, as the published evaluation has it."""
    for old, new in (*_DELETED_FIRST, *_DELETED_NEXT):
        text = text.replace(old, new)
    text = text.strip("$").replace("\\$", "")
    # "\text{ " opens a unit.
    text = text.split("\\text{ ")[0].replace("\\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text[0] == ".":
        text = "0" + text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = _brace_roots(text).replace(" ", "")
    return _slash_to_fraction(_brace_fractions(text))


def _brace_roots(text: str) -> str:
    r"""`\sqrt3` to `\sqrt{3}`."""
    first, *rest = text.split("\\sqrt")
    return first + "".join(
        "\\sqrt" + (part if not part or part[0] == "{" else f"{{{part[0]}}}{part[1:]}") for part in rest
    )


def _brace_fractions(text: str) -> str:
    r"""Braces around one-character parts, as in `\frac12`; the text as it was where a part is missing."""
    first, *rest = text.split("\\frac")
    parts = [first]
    for part in rest:
        if part and part[0] != "{":
            if len(part) < 2:
                return text
            top, bottom, tail = part[0], part[1], part[2:]
            part = f"{{{top}}}{bottom}{tail}" if bottom == "{" else f"{{{top}}}{{{bottom}}}{tail}"
        parts.append(part)
    return "\\frac".join(parts)


def _slash_to_fraction(text: str) -> str:
    r"""`3/4` to `\frac{3}{4}`, for two plain integers only."""
    match = re.fullmatch(r"(0|-?[1-9][0-9]*)/(0|-?[1-9][0-9]*)", text)
    return f"\\frac{{{match[1]}}}{{{match[2]}}}" if match else text
