"""Running model-written programs for an evaluation, and knowing how well they were kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from numsft.errors import UserError

if TYPE_CHECKING:
    from numsft.evaluation.sandbox import Isolation, Outcome


class ProgramRunner:
    """Runs batches of programs in the sandbox.

    Attributes:
        isolation: What the programs are kept from here; None as long as none had to run.
    """

    def __init__(self, workers: int | None = None, allow_no_sandbox: bool = False) -> None:
        """Remember how to run them.

        Args:
            workers: Programs at a time; None for the processor's cores.
            allow_no_sandbox: Run them also where they cannot be isolated.
        """
        self.workers = workers
        self.allow_no_sandbox = allow_no_sandbox
        self.isolation: Isolation | None = None

    def check(self) -> None:
        """Find out what isolation programs get here.

        Raises:
            UserError: If it is none and that was not allowed.
        """
        from numsft.evaluation.sandbox import isolation

        found = isolation()
        if found.level == "none" and not self.allow_no_sandbox:
            raise UserError(
                "model-written programs cannot be isolated on this machine (no user namespaces, no "
                "Landlock): evaluate on a Linux kernel that has one of them, or accept the risk with "
                "--allow_no_sandbox"
            )
        self.isolation = found

    def __call__(self, programs: Sequence[str]) -> list[Outcome]:
        """Run programs; return their outcomes in order."""
        from numsft.evaluation.sandbox import run_programs

        self.check()
        return run_programs(programs, workers=self.workers, allow_no_sandbox=self.allow_no_sandbox)
