"""Runs programs in plain subprocesses: the tests' stand-in for the sandbox, for programs the tests wrote."""

import re
import subprocess
import sys
from typing import NamedTuple


class Outcome(NamedTuple):
    stdout: str
    error: str | None
    seconds: float = 0.0


def run_programs(programs):
    return [run_program(program) for program in programs]


def run_program(program, seconds=5):
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-c", program],
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as late:
        return Outcome((late.stdout or b"").decode(), "timeout")
    named = re.findall(r"^([A-Za-z_][\w.]*)(?::|$)", done.stderr, re.MULTILINE)
    return Outcome(done.stdout, named[-1] if done.returncode and named else None)
