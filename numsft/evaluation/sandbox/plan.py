"""How programs are kept apart on this machine, and what each may use: two small records."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """One way of isolating a program.

    Attributes:
        namespaces: `root` (made with root's rights, the program runs as nobody), `user` (made by anyone), or
            "".
        landlock: the kernel's Landlock version, 0 = not used.
        seccomp: whether refused system calls are filtered.
        may_fork: whether the program may start processes. They need a pid namespace, which ends them all, and
            a user
            for whom the limit on their number counts, which is not root.
    """

    namespaces: str
    landlock: int
    seccomp: bool
    may_fork: bool

    @property
    def tasks(self) -> int | None:
        """Processes and threads of one program; None = bounded by the address space alone."""
        if self.namespaces:
            return 64 if self.may_fork else None
        return 1024 if self.may_fork else None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Names of what is used, for the results file."""
        spaces = ("pid", "network", "mount", "ipc", "uts", "user") if self.namespaces else ()
        names = [f"{space} namespace" for space in spaces]
        names += [f"landlock {self.landlock}"] if self.landlock else []
        return (*names, *(["seccomp"] if self.seccomp else []), "rlimits")


@dataclass(frozen=True)
class Limits:
    """What one program may use.

    Attributes:
        wall_seconds: time on the clock.
        cpu_seconds: processor time, rounded up to whole seconds.
        memory_mib: address space of each process, and resident memory of all together, MiB.
        output_bytes: standard output; a program that writes more is stopped.
    """

    wall_seconds: float = 5.0
    cpu_seconds: float = 5.0
    memory_mib: int = 1024
    output_bytes: int = 65536

    @property
    def whole_cpu_seconds(self) -> int:
        """The limit as the kernel takes it, seconds."""
        return max(1, math.ceil(self.cpu_seconds))
