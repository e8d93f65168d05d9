"""A thousand hostile programs leave no process, no file and no changed score, and the evaluator alive."""

import contextlib
import os
import random
import resource
import socket
import tempfile
from pathlib import Path

import pytest
from hostile import KINDS, RARE
from sandbox_watch import descendants

from numsft.evaluation.sandbox.plan import Limits
from numsft.evaluation.sandbox.run import run_batch

# The clock is generous, for good programs on a busy machine; processor time is what ends the hostile.
LIMITS = Limits(wall_seconds=8, cpu_seconds=1, memory_mib=512)

GOOD = [
    ("import math\nprint(math.comb({n}, 2))", lambda n: str(n * (n - 1) // 2)),
    ("from fractions import Fraction\nprint(Fraction({n}, 7) * 7)", str),
    ("total = 0\nfor k in range({n} + 1):\n    total += k\nprint(total)", lambda n: str(n * (n + 1) // 2)),
    ("open('notes', 'w').close()\nprint({n} * 3)", lambda n: str(n * 3)),
    ("from datetime import date, timedelta\nprint((date(2024, 1, 1) + timedelta({n})).toordinal())",
     lambda n: str(738886 + n)),
]  # fmt: skip


def mixture(hostile: int, facts: str, scratch: bool, seed: int) -> tuple[list[str], dict[int, str]]:
    """Hostile programs, all kinds in turn, the rare ones seldom, with a good one after every second."""
    draw = random.Random(seed)
    common = [kind for kind in KINDS if kind not in RARE]
    kinds = list(KINDS) if hostile > len(KINDS) else list(common)
    while len(kinds) < hostile:
        kinds.append(draw.choice(common if draw.random() < 0.97 else sorted(RARE)))
    draw.shuffle(kinds)
    good = GOOD if scratch else [pair for pair in GOOD if "open(" not in pair[0]]
    programs: list[str] = []
    expected: dict[int, str] = {}
    for n, kind in enumerate(kinds):
        programs.append(facts + KINDS[kind].replace("{n}", str(n)).replace("{{", "{").replace("}}", "}"))
        if n % 2:
            text, answer = draw.choice(good)
            expected[len(programs)] = answer(n) + "\n"
            programs.append(text.replace("{n}", str(n)))
    return programs, expected


def traces() -> dict[str, object]:
    """What a hostile program could leave behind or change, outside its own row."""
    places = {
        "/tmp",
        "/dev/shm",
        "/var/tmp",
        "/",
        os.path.expanduser("~"),
        os.getcwd(),
        tempfile.gettempdir(),
    }
    left = [path for place in places for path in Path(place).glob("numsft-hostile*")]
    sources = [Path(run_batch.__code__.co_filename), Path(os.__file__)]
    return {
        "files": sorted(left),
        "shared memory": Path("/proc/sysvipc/shm").read_text().count("\n"),
        "sources": [path.stat().st_mtime_ns for path in sources],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "processor limit": resource.getrlimit(resource.RLIMIT_CPU),
        "processes": descendants(),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


@pytest.mark.slow
def test_a_thousand_hostile_programs_change_nothing(plan, target):
    leave_nothing(1000 if plan.namespaces else 300, plan, target)  # without namespaces it is the fallback


def test_one_hostile_program_of_each_kind_that_ends_soon_changes_nothing(plan, target):
    leave_nothing(0, plan, target)


def leave_nothing(hostile: int, plan, target) -> None:
    before = traces()
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        port = tcp.getsockname()[1]
        with contextlib.suppress(OSError):  # the same number may be taken for datagrams
            udp.bind(("127.0.0.1", port))
        facts = f"TARGET, EVALUATOR, PORT = {str(target)!r}, {os.getpid()}, {port}\n"
        programs, expected = mixture(hostile, facts, scratch=bool(plan.namespaces), seed=20605)
        outcomes = run_batch(programs, plan, LIMITS)
        for server in (tcp, udp):
            server.setblocking(False)
        with pytest.raises(BlockingIOError):
            tcp.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(1)
    assert len(outcomes) == len(programs)
    good = {n: (outcomes[n].stdout, outcomes[n].error) for n in expected}
    changed = {n: got for n, got in good.items() if got != (expected[n], None)}
    assert changed == {}
    assert all(len(outcome.stdout) <= LIMITS.output_bytes for outcome in outcomes)
    assert target.read_text() == "untouched" and os.listdir(target.parent) == ["target"]
    assert traces() == before
