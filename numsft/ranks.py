"""What the processes of one run settle together: decisions, and who prints the one message of a fault."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

Decision = TypeVar("Decision")

_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "socket closed",
    "gloo/transport",
)


def decided_by_main(decide: Callable[[], Decision]) -> Decision:
    """Return the main process's decision on every rank; what it raises is raised on every rank.

    The folder is looked at once: ranks that look a moment apart could see different checkpoints.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return decide()
    from accelerate.utils import broadcast_object_list

    shared: list[tuple[Decision | None, Exception | None]] = [(None, None)]
    if dist.get_rank() == 0:
        try:
            shared = [(decide(), None)]
        except Exception as error:
            shared = [(None, error)]
    decision, refusal = broadcast_object_list(shared)[0]
    if refusal is not None:
        raise refusal
    return decision  # type: ignore[no-any-return]


def may_report() -> bool:
    """Whether this rank prints the message of a fault: the first that asks, on the store all ranks share."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return True
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return os.environ.get("RANK", "0") == "0"
    try:
        return bool(dist.distributed_c10d._get_default_store().add("numsft_fault", 1) == 1)
    except RuntimeError:  # the process that held the store has died, and its launcher says so
        return False


def lost_a_rank(error: BaseException) -> bool:
    """Whether an error only says that another rank is gone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return False
    import torch.distributed as dist

    if isinstance(error, getattr(dist, "DistError", ())):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _LOST)
