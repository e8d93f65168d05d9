"""What the commands share: a command line that cannot be read is a user's mistake like any other."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from numsft.errors import RunError, UserError


class Parser(argparse.ArgumentParser):
    """A parser that raises a `UserError` instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """Raise the message."""
        raise UserError(f"{message}; see `{self.prog} --help`")


def failed(error: UserError | RunError) -> int:
    """Print the message on stderr; return the exit status: 2 for the user's mistake, 1 for a fault."""
    print(f"error: {error}", file=sys.stderr, flush=True)
    return 2 if isinstance(error, UserError) else 1
