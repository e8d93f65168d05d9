r"""Finds the program in a completion, under the strict rules: fences unwrapped, prose around it left out.

The text is parsed by `ast`, which runs nothing; longer texts than `_MAX_PARSED` characters go to the sandbox
as they are.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

_MAX_PARSED = 20_000
_MAX_TRIES = 60
_MAX_NESTING = 80

_RUN_ON = re.compile(
    r"^[ \t]*(?:#{2,}\s*(?:Instruction|Input|Response|Question|Problem)\b"
    r"|(?:Question|Problem|Instruction|USER|ASSISTANT|Human)\s*:)",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE = re.compile(
    r"^[ \t]*```[ \t]*([A-Za-z0-9_+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL
)
_PYTHON = frozenset({"", "python", "python3", "py", "code", "tool_code"})
_PRINT = re.compile(r"\bprint\s*\(")
_CODE_LINE = re.compile(
    r"^\s*(?:import \w|from [\w.]+ import |def \w+\(|class \w+|return\b|(?:for|while|if|with) .*:\s*(?:#.*)?$"
    r"|print\s*\()",
    re.MULTILINE,
)
# "David = 18 / 2 = 9" and "Rug = 8 feet" are prose.
_ASSIGNMENT = re.compile(r"^\s*[A-Za-z_]\w*\s*[-+*/]?=(?!=)\s*(?!.*[\w)] +[A-Za-z])[^=\n]+$", re.MULTILINE)


def own_answer(text: str) -> str:
    """The text up to where the model goes on to ask itself another question."""
    match = _RUN_ON.search(text)
    # A text that starts with such a line has nothing before it.
    return text[: match.start()] if match and text[: match.start()].strip() else text


def find_program(text: str) -> str | None:
    """The program of a completion, ready to run at module level, or None where the text holds none.

    A completion is a program if it prints. One space that the prompt template put before it is dropped.
    """
    text = own_answer(text)
    if not _PRINT.search(text):
        return None
    blocks = [body for language, body in _FENCE.findall(text) if language.lower() in _PYTHON]
    printing = [body for body in blocks if _PRINT.search(body)]
    if printing:
        joined = _tidy("\n".join(blocks))
        return joined if parses(joined) else _tidy(printing[-1])
    program = _tidy(text)
    if parses(program):
        return program
    return _without_prose(program) or (program if looks_like_code(text) else None)


def looks_like_code(text: str) -> bool:
    """Whether the text is code rather than prose: then no number of it is an answer."""
    lines = [line for line in text.split("\n") if line.strip()]
    assignments = len(_ASSIGNMENT.findall(text))
    # One assignment may be the answer of a prose text ("x = 5"); two and more are a program.
    return (
        bool(_CODE_LINE.search(text)) or "```" in text or (assignments > 1 and 2 * assignments > len(lines))
    )


def parses(program: str) -> bool:
    """Whether Python can read the program; texts too long or too deeply nested to try are taken as such."""
    if len(program) > _MAX_PARSED or _nesting(program) > _MAX_NESTING:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _nesting(program: str) -> int:
    """A bound on how deep the parser would go: brackets open at once, or signs and operators in a row."""
    depth = deepest = 0
    for char in program:
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}":
            depth -= 1
    runs = max(
        (len(run) for run in re.findall(r"[-+~ ]{8,}|(?:not ){8,}|(?:\*\*\s*-?\w+\s*)+", program)), default=0
    )
    return max(deepest, 0 if runs < 4 * _MAX_NESTING else runs)


def _tidy(text: str) -> str:
    """The text without blank lines around it and without indentation that all its lines share."""
    program = textwrap.dedent(text.replace("\r\n", "\n").strip("\n"))
    # The space before the first line belongs to the prompt template, not to the program.
    return program.lstrip(" ") if program.startswith(" ") else program


def _without_prose(text: str) -> str | None:
    """The longest run of lines that parses and prints: prose before and after it is left out."""
    lines = text.split("\n")
    code = [i for i, line in enumerate(lines) if _CODE_LINE.match(line) or _ASSIGNMENT.match(line)]
    prints = [i for i, line in enumerate(lines) if _PRINT.search(line)]
    tries = 0
    for first in code[:5]:
        for end in range(len(lines), max(first, prints[0]), -1):
            tries += 1
            if tries > _MAX_TRIES:
                return None
            program = textwrap.dedent("\n".join(lines[first:end]))
            if _PRINT.search(program) and parses(program):
                return program
    return None
