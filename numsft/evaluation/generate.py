"""Ask the model what has not been asked yet: prompts of similar length together, stored at once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from numsft.evaluation.store import Key, SampleStore

if TYPE_CHECKING:
    from numsft.evaluation.engine import Engine


@dataclass(frozen=True)
class Request:
    """A prompt whose answer goes into one field of a row.

    Attributes:
        key: The question.
        prompt: The whole text that the model continues.
        stop: Strings that end the answer.
        max_new_tokens: Where it is cut off.
    """

    key: Key
    prompt: str
    stop: tuple[str, ...]
    max_new_tokens: int


def complete(engine: Engine, requests: Sequence[Request], field: str, store: SampleStore, label: str) -> int:
    """Generate and store the answers that `store` does not have yet.

    Args:
        engine: The model.
        requests: What to ask.
        field: Where the answer goes: `"pot"`, `"cot"` or `"answer"`.
        store: Where the rows are.
        label: Of the progress bar.

    Returns:
        How many answers were generated now.
    """
    asked = missing(requests, field, store)
    # The longest first: what does not fit into memory shows at once, and the bar never promises too much.
    order = sorted(asked, key=lambda request: (-engine.length(request.prompt), request.prompt))
    groups: dict[tuple[tuple[str, ...], int], list[Request]] = {}
    for request in order:
        groups.setdefault((request.stop, request.max_new_tokens), []).append(request)
    done = len(requests) - len(asked)
    with tqdm(total=len(requests), initial=done, desc=label, unit="answer") as bar:
        for (stop, limit), group in groups.items():
            for start in range(0, len(group), engine.window):
                window = group[start : start + engine.window]
                texts = engine.complete([request.prompt for request in window], stop, limit)
                store.add(
                    {"benchmark": request.key[0], "index": request.key[1], field: text}
                    for request, text in zip(window, texts, strict=True)
                )
                bar.update(len(window))
    return len(asked)


def missing(requests: Sequence[Request], field: str, store: SampleStore) -> list[Request]:
    """Return the requests to which `store` has no answer in `field`."""
    return [request for request in requests if store.rows.get(request.key, {}).get(field) is None]


# Scores may be written into the model's own folder.
_NOT_THE_MODEL = frozenset({"scores.json", "settings.json", "compare.json", "trainer_state.json"})


def fingerprint(folder: str | Path) -> str:
    """Return a digest of the files of a model folder, `""` where there is none (a Hub id).

    Weights are told apart by size and by their first and last MiB: hashing gigabytes takes minutes, and
    training changes all of them.
    """
    path = Path(folder)
    found = [path] if path.is_file() else sorted(path.glob("*")) if path.is_dir() else []
    files = [file for file in found if file.name not in _NOT_THE_MODEL]
    digest = hashlib.sha256()
    for file in files:
        if file.is_file() and file.suffix in (".json", ".safetensors", ".bin", ".gguf", ".model", ".jinja"):
            size = file.stat().st_size
            with file.open("rb") as content:
                digest.update(f"{file.name}|{size}|".encode())
                digest.update(content.read(2**20))
                content.seek(max(0, size - 2**20))
                digest.update(content.read())
    return digest.hexdigest()[:16] if files else ""
