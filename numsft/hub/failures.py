"""What goes wrong between here and the Hub: whether to try again, and what to tell the user."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from numsft.errors import RunError, UserError

logger = logging.getLogger(__name__)

_LONGEST_REASON = 260
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Patience:
    """How long the Hub is waited for.

    Attributes:
        tries: How often a request is sent that the client itself sends only once.
        wait: Seconds before the second try, twice that before the third, and so on.
        timeout: Seconds without a byte after which a connection counts as broken. The client has no limit.
    """

    tries: int = 4
    wait: float = 2.0
    timeout: float = 120.0

    @classmethod
    def from_environment(cls) -> Patience:
        """Return the defaults, with `NUMSFT_HUB_WAIT` and `NUMSFT_HUB_TIMEOUT` (seconds) where they are set.

        Raises:
            UserError: If one of them is not a number.
        """
        values: dict[str, float] = {}
        for name in ("wait", "timeout"):
            text = os.environ.get(f"NUMSFT_HUB_{name.upper()}")
            try:
                values |= {name: float(text)} if text else {}
            except ValueError:
                raise UserError(f"NUMSFT_HUB_{name.upper()} is {text!r}, but should be seconds") from None
        return cls(wait=values.get("wait", cls.wait), timeout=values.get("timeout", cls.timeout))


def reason(error: Exception, repo_id: str) -> tuple[type[UserError] | type[RunError], str]:
    """Say in one clause why a push failed and what to do, with the exception that this makes."""
    if isinstance(error, UserError):
        return UserError, str(error)
    if is_offline(error):
        return UserError, "HF_HUB_OFFLINE is set: unset it where there is a network"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return RunError, "the disk is full: make room"
    sent = _of_request(error)
    status = _status(sent)
    if status == 401:
        return UserError, (
            "the Hub does not accept the login (401): run `hf auth login`, or set HF_TOKEN to a token with "
            "write access"
        )
    if status == 403:
        return UserError, (
            f"this login may not write to {repo_id} (403): take a token with write access to it, or another "
            "hub_model_id"
        )
    if status in (400, 402, 404):
        # About a card, the client's own error says more than the one of the request.
        said = error if isinstance(error, ValueError) else sent
        return UserError, f"the Hub refused it ({status}): {_short(said)}"
    if status in (409, 412):
        return RunError, f"somebody else is writing to {repo_id} ({status}): try again"
    if status is not None:
        return RunError, f"the Hub answered {status}: {_short(sent)}"
    if _url(sent):
        return RunError, f"the connection to {_host(_url(sent))} broke ({_short(sent)})"
    if isinstance(error, json.JSONDecodeError):
        return RunError, "the Hub's answer is not JSON, as behind a proxy or a login page"
    return RunError, f"{type(error).__name__}: {_short(error)}"


def with_retries(call: Callable[[], _Result], patience: Patience) -> _Result:
    """Call until it succeeds, for failures that may pass; a conflict of commits gets one more try only."""
    conflicts = 0
    for attempt in range(patience.tries):
        try:
            return call()
        except Exception as error:
            conflicts += _status(_of_request(error)) in (409, 412)
            if attempt + 1 == patience.tries or conflicts > 1 or not _may_pass(error):
                raise
            pause = patience.wait * 2**attempt
            logger.warning(
                "The Hub failed (%s): trying again in %g s.", reason(error, "the repository")[1], pause
            )
            time.sleep(pause)
    raise AssertionError("not reached: the last try returns or raises")


def _may_pass(error: Exception) -> bool:
    """Whether another try can help that the client has not made itself."""
    if is_offline(error):
        return False
    sent = _of_request(error)
    status, url = _status(sent), _url(sent)
    if status is not None and status < 500 and status not in (408, 409, 412, 429):
        return False
    # The client sends everything else five times more by itself.
    once = any(part in url for part in ("/api/repos/create", "/api/validate-yaml", "/commit/", "/branch/"))
    return once or isinstance(error, json.JSONDecodeError)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def is_offline(error: Exception) -> bool:
    """Whether it was this machine's own offline mode that stood in the way."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    return any(isinstance(link, OfflineModeIsEnabled) for link in _chain(error))


def _of_request(error: BaseException) -> BaseException:
    """The exception in the chain that knows the request, else the first one."""
    return next((link for link in _chain(error) if _url(link)), error)


def _status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _url(error: BaseException) -> str:
    try:
        request: Any = getattr(error, "request", None)
    except RuntimeError:  # the HTTP library's answer where there was none
        return ""
    return str(getattr(request, "url", "") or "")


def _host(url: str) -> str:
    found = re.match(r"\w+://([^/?]+)", url)
    return found[1] if found else "the Hub"


def _short(error: BaseException) -> str:
    """The message on one line; what follows `?` in an address can be a signature and is left out."""
    text = str(getattr(error, "server_message", None) or error).partition("For more information check:")[0]
    text = " ".join(text.split()) or type(error).__name__
    text = re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]*", r"\1", text).rstrip(".")
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
