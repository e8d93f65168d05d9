"""Rows that fill up the last distributed batch are left out, padded or in one line."""

import pickle

import torch
from helpers import sums_dataset, tiny_trainer

from numsft.filler import ROW_LENGTHS, WithRowLengths, without_last_rows
from numsft.numerals import IGNORED


def test_rows_are_left_out_whether_padded_or_in_one_line():
    padded = torch.tensor([[1, 2, 3], [4, 5, IGNORED]])
    lengths = torch.tensor([3, 2])
    assert without_last_rows(padded, lengths, 1).tolist() == [[1, 2, 3], [IGNORED] * 3]
    line = torch.tensor([[1, 2, 3, 4, 5]])
    assert without_last_rows(line, lengths, 1).tolist() == [[1, 2, 3, IGNORED, IGNORED]]
    assert without_last_rows(line, lengths, 2).tolist() == line.tolist()
    assert without_last_rows(line, lengths, 0).tolist() == [[IGNORED] * 5]
    assert line.tolist() == [[1, 2, 3, 4, 5]]
    one_row = torch.tensor([[1, 2]])
    assert without_last_rows(one_row, torch.tensor([2]), 0).tolist() == [[IGNORED, IGNORED]]


def test_a_batch_of_packed_rows_says_how_long_each_is(tmp_path):
    trainer = tiny_trainer(
        tmp_path,
        eval_dataset=sums_dataset(7, seed=5),
        packing=True,
        max_length=24,
        per_device_eval_batch_size=2,
    )
    rows = [len(row) for row in trainer.eval_dataset["input_ids"]]
    lengths = [batch[ROW_LENGTHS].tolist() for batch in trainer.get_eval_dataloader()]
    assert lengths == [rows[start : start + 2] for start in range(0, len(rows), 2)]
    assert not isinstance(trainer.data_collator, WithRowLengths), "training batches carry nothing more"
    assert isinstance(pickle.loads(pickle.dumps(trainer.get_eval_dataloader().collate_fn)), WithRowLengths)
