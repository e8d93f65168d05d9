"""SIGTERM and Ctrl-C: a run that trains ends after its optimiser step with a checkpoint, any other at once.

Schedulers and launchers send SIGTERM and, some 30 seconds later, SIGKILL. What cannot be saved within
`NUMSFT_STOP_SECONDS` (25 where it is not set) is therefore given up: at most `save_steps` steps are lost.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(BaseException):
    """A signal ended the run. Like `KeyboardInterrupt`, no `except Exception` of a library swallows it."""


class StopSignals:
    """What has been asked for by signals, and whether the run ends itself or is ended.

    Attributes:
        received: Name of the signal received, None before.
    """

    def __init__(self) -> None:
        """Receive nothing yet; see `installed`."""
        self.received: str | None = None
        self._deferred = False
        self._timer: threading.Timer | None = None
        self._pid = os.getpid()
        self._on_timeout: Callable[[str], object] = lambda text: None

    @contextmanager
    def installed(self, on_timeout: Callable[[str], object]) -> Iterator[None]:
        """Answer the signals while the block runs; only the main thread can.

        Args:
            on_timeout: Reports the message where the time is over, before the process is ended.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._on_timeout = on_timeout
        _die_with_the_launcher()
        before = {number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            self.settle()
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self, done: str) -> Iterator[None]:
        """Let the block end itself when it sees `received`; otherwise a signal raises where it arrives.

        Args:
            done: What has been done when the block ends in spite of a signal.

        Raises:
            Stopped: At the end of the block, where a signal came and nothing has answered it.
        """
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self.received:
            raise Stopped(f"Stopped by {self.received}: {done}.")

    def settle(self) -> None:
        """Take the time limit away: the run is ending by itself."""
        if self._timer is not None:
            self._timer.cancel()

    def _receive(self, number: int, frame: Any) -> None:
        if os.getpid() != self._pid:  # a worker forked from this process
            if number == signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return  # the terminal sends Ctrl-C to workers too, which the run still needs for its last step
        again = self.received is not None
        self.received = signal.Signals(number).name
        if again or not self._deferred:
            where = "in the middle of a step" if self._deferred else "outside the training loop"
            raise Stopped(
                f"Stopped by {self.received} {where}, nothing more was saved: give "
                "--resume_from_checkpoint true to go on from the last checkpoint, if there is one."
            )
        seconds = float(os.environ.get("NUMSFT_STOP_SECONDS", "25"))
        self._timer = threading.Timer(seconds, self._end, args=[seconds])
        self._timer.daemon = True
        self._timer.start()

    def _end(self, seconds: float) -> None:
        self._on_timeout(
            f"Stopped by {self.received}: the optimiser step did not end within {seconds:g} s, so nothing "
            "was saved (NUMSFT_STOP_SECONDS gives it longer)."
        )
        sys.stdout.flush()
        os._exit(1)


def _die_with_the_launcher() -> None:
    """Have SIGTERM sent when `accelerate launch` dies, which does not pass signals on to a single process."""
    if sys.platform == "linux" and "ACCELERATE_MIXED_PRECISION" in os.environ and "RANK" not in os.environ:
        import ctypes

        parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGTERM)
