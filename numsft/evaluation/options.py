"""What an evaluation was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """What is evaluated and how; the command line's flags of the same names say what each is.

    `prompt_template` is `"alpaca"`, `"chat"` or `"none"`; None takes the one that the adapter's recipe names,
    where it is one of these, else `"alpaca"`.
    """

    model: str
    benchmarks: tuple[str, ...]
    output_dir: Path
    mode: str = "strict"
    backend: str = "hf"
    data_dir: str | None = None
    limit: int | None = None
    batch_size: int = 16
    max_new_tokens: int | None = None
    gguf_file: str | None = None
    dtype: str = "auto"
    workers: int | None = None
    allow_no_sandbox: bool = False
    prompt_template: str | None = None
    nupa_per_length: int = 1
    nupa_seed: int = 0
    entropy: bool = True
    remap: Path | None = None
