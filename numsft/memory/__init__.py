"""Memory of a run on one GPU, estimated before it starts."""

from numsft.memory.estimate import estimate
from numsft.memory.fit import check_fits, nearest_fit
from numsft.memory.moments import MemoryEstimate, Moment
from numsft.memory.plan import Plan, plan_from_accelerate
from numsft.memory.report import memory_report, report_lines, setup_of, trainable_line
from numsft.memory.setup import Setup
from numsft.memory.shape import Lora, ModelShape, lora_targets

__all__ = [
    "Lora",
    "MemoryEstimate",
    "ModelShape",
    "Moment",
    "Plan",
    "Setup",
    "check_fits",
    "estimate",
    "lora_targets",
    "memory_report",
    "nearest_fit",
    "plan_from_accelerate",
    "report_lines",
    "setup_of",
    "trainable_line",
]
