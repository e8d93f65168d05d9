"""math-verify's judgement of MATH answers, a second score column beside our own.

It bounds its time with SIGALRM, which works in no other thread than the main one, and sympy can use any
amount of memory. So it runs in a worker process, with a memory limit, that is killed and started anew when
one pair takes too long.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from numsft.errors import UserError

_START_SECONDS = 120.0
_MAX_ANSWER = 2000
_WORKER = Path(__file__).with_name("math_verify_worker.py")


class _Worker:
    """The process, one question and one reply line at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self.reply(_START_SECONDS) != "ready":
            self.close()
            raise UserError("math-verify does not start; expected the extra eval: pip install 'numsft[eval]'")

    def reply(self, seconds: float) -> str | None:
        """The next line without its end, None where the time is up or the process has gone."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return None
        return self.process.stdout.readline().strip() or None

    def ask(self, answer: str, gold: str, seconds: float) -> bool | None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([answer, gold]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        reply = self.reply(seconds)
        return None if reply is None else json.loads(reply)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def math_verify(pairs: Sequence[tuple[str, str]], seconds: float = 5.0) -> list[bool | None]:
    """Whether math-verify takes each (answer, gold) pair, both LaTeX, as equal.

    Returns:
        One value for each pair; None where it took more than `seconds` or the worker died of it.

    Raises:
        UserError: math-verify is not installed.
    """
    if find_spec("math_verify") is None:
        raise UserError("math-verify is not installed; install the extra eval: pip install 'numsft[eval]'")
    verdicts: list[bool | None] = []
    worker: _Worker | None = None
    try:
        for answer, gold in pairs:
            if not answer or len(answer) > _MAX_ANSWER:
                verdicts.append(False)
                continue
            worker = worker or _Worker()
            verdicts.append(worker.ask(answer, gold, seconds))
            if verdicts[-1] is None:
                worker.close()
                worker = None
    finally:
        if worker is not None:
            worker.close()
    return verdicts


def add_math_verify(rows: Iterable[dict[str, Any]], seconds: float = 5.0) -> list[dict[str, Any]]:
    """Scored rows, those of MATH with a `math_verify` column: bool, None for timed out."""
    rows = list(rows)
    wanted = [i for i, row in enumerate(rows) if row["benchmark"] in ("math", "math500")]
    verdicts = math_verify([(rows[i]["extracted"], rows[i]["gold"]) for i in wanted], seconds)
    columns = dict(zip(wanted, verdicts, strict=True))
    return [{**row, "math_verify": columns[i]} if i in columns else row for i, row in enumerate(rows)]
