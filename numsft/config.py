"""The settings of a run: `NumSFTConfig` (TRL's `SFTConfig` and the objective) and `DataConfig` (the rows)."""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from transformers.utils.import_utils import is_torch_bf16_gpu_available, is_torch_xla_available
from trl import SFTConfig  # type: ignore[attr-defined]

from numsft.errors import UserError
from numsft.losses.base import NumberLoss, TokenLoss

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    TokenLossChoice = str | TokenLoss
    NumberLossChoice = str | NumberLoss
else:  # HfArgumentParser builds a TRL script's command line from the annotations, and knows plain types only
    TokenLossChoice = str
    NumberLossChoice = str


class _Unset(str):
    """A default that can be told from the same word written by the user.

    argparse passes defaults through `str`, which must not lose the difference.
    """

    def __str__(self) -> str:
        return self


@dataclass
class NumSFTConfig(SFTConfig):
    r"""Configuration of [`NumSFTTrainer`]: everything `SFTConfig` has, and the objective.

    One optimiser step minimises the mean over tokens of the token loss + `number_loss_weight` * the mean
    over digits of place weight * number loss. Names and options of losses are checked where the objective is
    built.

    Differences from `SFTConfig`: without an accelerator `use_cpu` is set and an unset `bf16` is `False`;
    `bf16: true` falls back to float32 where not supported (an explicit `use_cpu` keeps it);
    `loss_type="dft"` becomes `token_loss="dft"`; `use_liger_kernel` becomes `liger_layer_kernels`; label
    smoothing is refused.

    Raises:
        UserError: (a `ValueError`) for label smoothing, two token losses at once, or a chunk size below 1.
    """

    _VALID_DICT_FIELDS = [  # noqa: RUF012 (the parent's own form)
        *SFTConfig._VALID_DICT_FIELDS,
        "token_loss_kwargs",
        "number_loss_kwargs",
        "place_weighting_kwargs",
    ]

    # Parameters that control the objective
    token_loss: TokenLossChoice = field(
        default=_Unset("ce"),
        metadata={
            "help": "Loss over the whole vocabulary, for every trained token: a name in "
            "`numsft.losses.TOKEN_LOSSES` (in Python also an instance)."
        },
    )
    token_loss_kwargs: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Options of the token loss, such as `{eta: 0.5}` for `mixce`."}
    )
    number_loss: NumberLossChoice = field(
        default="del",
        metadata={
            "help": "Loss over number tokens, at number positions: a name in `numsft.losses.NUMBER_LOSSES`"
            " (in Python also an instance), or `none`."
        },
    )
    number_loss_weight: float | None = field(
        default=None,
        metadata={"help": "Weight of the number loss in the objective. Unset, it is that loss's default."},
    )
    number_loss_kwargs: dict[str, Any] | str | None = field(
        default=None,
        metadata={"help": "Options of the number loss, such as `{detach_weight: true}` for `del`."},
    )
    place_weighting: str | None = field(
        default=None,
        metadata={
            "help": "How a digit is weighted by its place: `none`, `integer` (digits to its right + 1) or "
            "`float` (k(place+1) from units upwards, beta^(place - decimal_offset) below). Unset, it is that "
            "loss's default.",
            "choices": ["none", "integer", "float"],
        },
    )
    place_weighting_kwargs: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Options of the place weights: `k`, `beta` and `decimal_offset`."}
    )
    number_reduction: str = field(
        default="digits",
        metadata={
            "help": "What the sum over digits is divided by: `digits` (the digits of the optimiser step), "
            "`weights` (their place weights), `tokens` (its trained tokens), or `reference` (as the paper's "
            "code scaled it).",
            "choices": ["digits", "weights", "tokens", "reference"],
        },
    )
    head_chunk_size: int | None = field(
        default=None,
        metadata={
            "help": "Tokens that the LM head treats at a time. Unset, it is chosen from the vocabulary."
        },
    )
    liger_layer_kernels: bool = field(
        default=False,
        metadata={
            "help": "Use liger-kernel's layers without its cross-entropies. `use_liger_kernel` sets the same."
        },
    )

    # Parameters that control the output
    overwrite_output_dir: bool = field(
        default=False,
        metadata={
            "help": "Delete the checkpoints and `resolved.yaml` that an earlier run left in `output_dir`."
        },
    )
    merge: bool = field(
        default=False,
        metadata={"help": "After training, also save the model with the adapter merged into it."},
    )

    def __post_init__(self) -> None:
        """Settle what TRL and transformers would warn about or refuse, then let them check the rest."""
        if self.label_smoothing_factor:
            raise UserError(
                f"label_smoothing_factor is {self.label_smoothing_factor}, but token losses are not smoothed:"
                " leave it at 0 (`number_loss: gaussian_smoothing` smooths over neighbouring digits)"
            )
        if self.head_chunk_size is not None and self.head_chunk_size < 1:
            raise UserError(
                f"head_chunk_size is {self.head_chunk_size}, but a chunk holds at least 1 token: "
                "leave it unset to have it chosen"
            )
        self._settle_token_loss()
        if self.number_loss is None:
            self.number_loss = "none"
        if self.use_liger_kernel:
            self.liger_layer_kernels, self.use_liger_kernel = True, False
        # transformers deprecates the old names and warns even about TRL's own default of them.
        if self.activation_checkpointing is None:
            self.activation_checkpointing = self.gradient_checkpointing
        if self.activation_checkpointing_kwargs is None:
            self.activation_checkpointing_kwargs = self.gradient_checkpointing_kwargs
        self._settle_precision()
        super().__post_init__()  # type: ignore[no-untyped-call]

    def _settle_token_loss(self) -> None:
        """Make `token_loss` the one place that names the token loss: `loss_type` goes back to `"nll"`."""
        if self.loss_type == "dft":
            if self.token_loss != "dft" and not isinstance(self.token_loss, _Unset):
                raise UserError(
                    f"loss_type is 'dft' and token_loss is {_loss_name(self.token_loss)!r}, but there is one "
                    "token loss: remove loss_type, or set `token_loss: dft`"
                )
            self.token_loss, self.loss_type = "dft", "nll"
        if isinstance(self.token_loss, _Unset):
            self.token_loss = "".join(self.token_loss)

    def _settle_precision(self) -> None:
        """Decide `use_cpu`, `bf16` and `fp16` for this machine: unasked, bf16 on a CPU is refused."""
        launched_on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "on")
        chosen_cpu = self.use_cpu or launched_on_cpu
        has_accelerator = torch.accelerator.is_available() or is_torch_xla_available()
        self.use_cpu = chosen_cpu or not has_accelerator
        if self.use_cpu:
            keeps_bf16, where = chosen_cpu, "without an accelerator (`use_cpu: true` keeps it)"
        else:
            keeps_bf16 = is_torch_bf16_gpu_available() or is_torch_xla_available()
            where = "on this accelerator"
        if self.bf16 is None:
            self.bf16 = not self.use_cpu and keeps_bf16 and not self.fp16
        elif self.bf16 and not keeps_bf16:
            logger.warning("bf16 is not used %s: training in float32.", where)
            self.bf16 = False
        if self.fp16 and self.use_cpu:
            logger.warning("fp16 is not used without an accelerator: training in float32.")
            self.fp16 = False

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values; a loss given as an instance becomes its name and options."""
        settings: dict[str, Any] = super().to_dict()  # type: ignore[no-untyped-call]
        for key in ("token_loss", "number_loss"):
            loss = settings[key]
            if not isinstance(loss, str):
                settings[key] = _loss_name(loss)
                settings[f"{key}_kwargs"] = _loss_options(loss)
        return settings


def _loss_name(loss: str | TokenLoss | NumberLoss) -> str:
    return loss if isinstance(loss, str) else getattr(loss, "name", type(loss).__name__)


def _loss_options(loss: TokenLoss | NumberLoss) -> dict[str, Any]:
    """The hyper-parameters of a loss, as JSON can hold them."""
    if not dataclasses.is_dataclass(loss):
        return {}
    options = {option.name: getattr(loss, option.name) for option in dataclasses.fields(loss)}
    plain = (bool, int, float, str, tuple, type(None))
    return {name: value if isinstance(value, plain) else repr(value) for name, value in options.items()}


@dataclass
class DataConfig:
    """Where the rows come from, how they become prompt and completion, and what a GGUF copy stands for."""

    gguf_file: str | None = field(
        default=None,
        metadata={"help": "Name of the GGUF file in the model's folder, where the weights are in one."},
    )
    base_model_id: str | None = field(
        default=None,
        metadata={
            "help": "Hub id that the adapter and its card name as the base, where the model is a local copy."
        },
    )
    dataset: str | None = field(
        default=None,
        metadata={
            "help": "A Hub id, a JSON, JSONL or Parquet file, or `nupa` (number tasks made on the spot)."
        },
    )
    dataset_config: str | None = field(
        default=None, metadata={"help": "Configuration of the Hub data set, such as `main` for GSM8K."}
    )
    dataset_split: str = field(default="train", metadata={"help": "Split that is trained on."})
    eval_dataset: str | None = field(
        default=None, metadata={"help": "Data evaluated on during training, named like `dataset`."}
    )
    eval_size: float = field(
        default=0,
        metadata={"help": "Rows held out of `dataset` for evaluation: a number, or a share below 1."},
    )
    prompt_column: str | None = field(
        default=None, metadata={"help": "Column with the prompt. Unset, the usual names are recognised."}
    )
    completion_column: str | None = field(
        default=None, metadata={"help": "Column with the completion. Unset, the usual names are recognised."}
    )
    prompt_template: list[str] | str | None = field(
        default=None,
        metadata={
            "help": "`alpaca` (or `alpaca_1` to `alpaca_12`; `alpaca_mix` is all of them), `chat`, `none`, "
            "or a text with `{prompt}`. Of a list, each row has one, drawn by a hash of its prompt and "
            "`seed`. Unset, the data's format decides."
        },
    )
    max_samples: int | None = field(default=None, metadata={"help": "Use only the first rows of the data."})
    before_after: int = field(
        default=0,
        metadata={"help": "Held-out items answered before and after training, for the closing table."},
    )
    nupa_tasks: list[str] | None = field(
        default=None,
        metadata={
            "help": "Number tasks to make, where `dataset` is `nupa`. Unset, integer_add, integer_subtract, "
            "integer_multiply, float_add and float_subtract of the 41 in `numsft.evaluation.nupa`."
        },
    )
    nupa_digits: list[int] = field(
        default_factory=lambda: [1, 4], metadata={"help": "Fewest and most digits of an operand."}
    )
    nupa_size: int | None = field(default=None, metadata={"help": "Number of rows to make."})
    nupa_seed: int | None = field(
        default=None, metadata={"help": "Seed of the number tasks. Unset, it is the run's `seed`."}
    )

    def __post_init__(self) -> None:
        """Refuse sizes that no data has.

        Raises:
            UserError: (a `ValueError`) in one sentence.
        """
        digits = self.nupa_digits
        if len(digits) != 2 or not 1 <= digits[0] <= digits[1]:
            raise UserError(
                f"nupa_digits is {digits}, but should be the fewest and the most digits: write `[1, 4]`"
            )
        if self.eval_size < 0 or (self.eval_size > 1 and self.eval_size != int(self.eval_size)):
            raise UserError(
                f"eval_size is {self.eval_size}, but should be a number of rows or a share below 1"
            )
        if self.before_after < 0:
            raise UserError(
                f"before_after is {self.before_after}, but should be a number of items: 0 for none"
            )
        for key in ("max_samples", "nupa_size"):
            rows = getattr(self, key)
            if rows is not None and rows < 1:
                raise UserError(
                    f"{key} is {rows}, but should be at least 1: leave it unset to use the default"
                )
