"""What the commands share: a command line that cannot be read is a user's mistake like any other."""

from __future__ import annotations

import argparse
from typing import NoReturn

from numsft.errors import UserError


class Parser(argparse.ArgumentParser):
    """A parser that raises a `UserError` instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """Raise the message."""
        raise UserError(f"{message}; see `{self.prog} --help`")
