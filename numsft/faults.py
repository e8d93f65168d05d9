"""Finding out what a run stumbled over, after it has."""

from __future__ import annotations

from typing import Any

import numpy as np
from datasets import Dataset


def find_rows(dataset: Any, inputs: dict[str, Any]) -> list[int]:
    """Return the indices of the prepared rows that a micro-batch was made of.

    Looked up by their tokens, so that nothing has to be carried along while all goes well. Equal rows are all
    returned.

    Args:
        dataset: The prepared training data, with `input_ids`; a streamed one gives no answer.
        inputs: The micro-batch: padded rows with an `attention_mask`, or one row of packed documents.
    """
    if not isinstance(dataset, Dataset):
        return []
    rows = inputs["input_ids"].cpu().numpy().astype(np.int64)
    if inputs.get("attention_mask") is not None:
        mask = inputs["attention_mask"].cpu().numpy().astype(bool)
        wanted = {row[keep].tobytes() for row, keep in zip(rows, mask, strict=True)}
        return [i for i, ids in enumerate(_token_bytes(dataset)) if ids in wanted]
    packed = rows.tobytes()
    found = ((i, packed.find(ids)) for i, ids in enumerate(_token_bytes(dataset)))
    return [i for i, at in found if at >= 0 and at % rows.itemsize == 0]


def _token_bytes(dataset: Dataset) -> Any:
    for batch in dataset.select_columns(["input_ids"]).iter(batch_size=1000):
        for ids in batch["input_ids"]:
            yield np.asarray(ids, dtype=np.int64).tobytes()
