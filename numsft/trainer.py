"""`NumSFTTrainer`: TRL's `SFTTrainer` with a number loss beside the token loss, over a chunked LM head."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.parallelism_config import ParallelismConfig
from torch import Tensor
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import EvalLoopOutput
from trl import SFTTrainer  # type: ignore[attr-defined]

from numsft import checkpoints, hub
from numsft.config import NumSFTConfig
from numsft.errors import RunError, UserError
from numsft.faults import writing
from numsft.filler import ROW_LENGTHS, WithRowLengths, without_last_rows
from numsft.finite import NonFinite, loss_terms, weights_are_finite, weights_not_finite
from numsft.head import SUM_NAMES
from numsft.hub.trainer import HubMixin
from numsft.liger import use_layer_kernels, why_no_layer_kernels
from numsft.metrics import MetricSums, number_errors, summarise
from numsft.microbatch import StepCounts, count_step, head_batch
from numsft.numerals import NumberVocab
from numsft.objective import Objective
from numsft.trl_bridge import (
    HeadCall,
    attach_head,
    base_model_of,
    check_head,
    evaluation_collator,
    frozen_cost_embedding,
    named_base,
    without_peft_warning,
)

logger = logging.getLogger(__name__)

_LOW_LOGIT = 1.0
"""Below this mean digit logit a loss on raw logits, such as DEL, can push the right digit down."""


class NumSFTTrainer(HubMixin, SFTTrainer):
    """Supervised fine-tuning with a number loss beside the token loss.

    One optimiser step minimises

        (1/N) sum_tokens T_t  +  alpha (1/S) sum_digits w_t R_t

    with a token loss T over the vocabulary, a number loss R over the number tokens and place weights w, all
    set in [`NumSFTConfig`]. N and S are counted over the whole step: all micro-batches, all ranks.

    Takes what `SFTTrainer` takes and does what it does, except for what a chunked head cannot give: label
    smoothing, `compute_loss_func` and metrics on logits are refused.

    Beside what `SFTTrainer` logs: `token_loss`, `number_loss` (without alpha), `digit_accuracy`,
    `digit_entropy` (nats), `digit_mass`, `digit_logit`, `digits_per_step`, in training and with `eval_`; see
    `numsft.metrics.summarise`.

    Raises:
        ValueError: One sentence, for an objective, a head or an argument that does not fit.
    """

    model: Any  # transformers' own annotations are too wide to check against
    args: NumSFTConfig
    train_dataset: Any
    processing_class: Any
    objective: Objective
    loss_is_scaled_for_ga = True  # type: ignore[assignment]  # by N and S of the whole step
    _tag_names = ["trl", "sft", "numsft"]  # noqa: RUF012 (the parent's own form)
    _name = "numsft"

    def __init__(self, model: Any, args: TrainingArguments | None = None, **kwargs: Any) -> None:
        """Build the trainer; arguments are those of `SFTTrainer`."""
        args = _as_num_sft_config(args)
        _refuse_sharded_sequences(args.parallelism_config or _launched_parallelism())
        for name in ("compute_loss_func", "compute_metrics", "preprocess_logits_for_metrics"):
            if kwargs.get(name) is not None:
                raise UserError(
                    f"{name} needs the full logits, which this trainer never builds: choose token_loss and "
                    "number_loss instead, and read the digit metrics from the log."
                )
        self.objective = Objective.from_config(args)
        self._counter = _RunState()
        self._non_finite = NonFinite()
        self._broken_before: list[str] = []
        callbacks = [*(kwargs.pop("callbacks", None) or []), self._counter]
        with without_peft_warning():
            super().__init__(model, args, callbacks=callbacks, **kwargs)
        self.model_accepts_loss_kwargs = True

        self.vocab = self._number_vocab()
        self.has_numbers = len(self.vocab.token_ids) > 0
        check_head(self.model, int(self.vocab.token_ids.max()) if self.has_numbers else None)
        attach_head(base_model_of(self.model))
        wants_cost = self.objective.token_loss.needs_cost_embedding
        self._cost_embedding = frozen_cost_embedding(self.model) if wants_cost else None
        if args.liger_layer_kernels and not use_layer_kernels(base_model_of(self.model)):
            logger.warning("Liger's layer kernels are left off: %s.", why_no_layer_kernels())

        self.card = hub.CardFacts()
        device = self.accelerator.device
        self._sums = {"train": MetricSums(device), "eval": MetricSums(device)}
        self._counts: StepCounts | None = None
        self._last_sums = torch.zeros(len(SUM_NAMES))
        self._warned_of_low_logit = False

    # One optimiser step.

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # Resumed from its last step, the Trainer would take one step more than max_steps.
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)  # type: ignore[no-untyped-call]

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | None]:
        """Collect the step's micro-batches and count N and S over them and over all ranks."""
        batches = []
        for _ in range(num_batches):
            try:
                batches.append(next(epoch_iterator))
            except StopIteration:
                break
        counts = count_step(batches, self.vocab, self.objective).to(device)
        shared = self.args.average_tokens_across_devices and self.accelerator.num_processes > 1
        if shared:
            counts = self.accelerator.reduce(counts, reduction="sum")
        self._non_finite.start(batches)
        self._counts = StepCounts(
            tokens=counts[0],
            numbers=None if self.objective.reduction == "reference" else counts[1],
            averaged_over=self.accelerator.num_processes if shared else 1,
        )
        if batches:
            self._sums["train"].add_extra(steps=1 / self.accelerator.num_processes)
        return batches, counts[0] if batches else None

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the micro-batch's part of the step's loss.

        Without `num_items_in_batch` (evaluation, or a call from outside) the micro-batch is a step of its
        own.
        """
        training = self.model.training
        counts = self._counts if num_items_in_batch is not None else None
        if counts is not None and isinstance(num_items_in_batch, int):
            counts = dataclasses.replace(counts, tokens=torch.tensor(float(num_items_in_batch)))
        batch = head_batch(inputs, self.vocab, self.objective, counts, seed=self._noise_seed())
        model_inputs = {name: value for name, value in inputs.items() if name not in ("labels", ROW_LENGTHS)}
        # The cache would switch off the isolation of packed documents, and checkpointing refuses it.
        model_inputs["use_cache"] = False
        if self.aux_loss_enabled:
            model_inputs["output_router_logits"] = True
        call = HeadCall(batch, self.objective, self.args.head_chunk_size, self._cost_embedding)
        outputs = model(**model_inputs, head_call=call)
        loss = outputs["loss"]
        extra: dict[str, Any] = {}
        if self.aux_loss_enabled:
            # A mean over the micro-batch, which nothing divides by the accumulation steps any more.
            router = self.router_aux_loss_coef * outputs["aux_loss"]
            loss = loss + router / (1 if counts is None else self.current_gradient_accumulation_steps)
            extra["aux_loss"] = router.detach()

        assert call.sums is not None
        if call.predicted is not None:
            extra |= number_errors(batch, call.predicted)
        head_sums = self._last_sums = call.sums
        if (
            training and self.is_deepspeed_enabled and not torch.isfinite(loss)
        ):  # it steps while backward runs
            self._non_finite.remember(loss_terms(head_sums), inputs)
            self._non_finite.refuse(self, None)
        denominator: Tensor | float = batch.number_count
        if self.objective.reduction == "reference" and training:
            head_sums = head_sums.clone()
            head_sums[SUM_NAMES.index("number_loss")] /= batch.number_count.clamp(min=1)
            denominator = 0.0
        self._sums["train" if training else "eval"].add(
            head_sums, denominator=denominator, batches=1, input_tokens=_input_tokens(inputs), **extra
        )
        if not return_outputs:
            return loss
        with torch.no_grad():
            return loss, model(**model_inputs)

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """Train on a micro-batch; a loss that is not finite is remembered until the weights would change."""
        loss: Tensor = super().training_step(model, inputs, *args, **kwargs)  # type: ignore[no-untyped-call]
        # The Trainer reads the loss here anyway, to keep NaN out of its log.
        if not torch.isfinite(loss):
            self._non_finite.remember(loss_terms(self._last_sums), inputs)
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        # Called once a step, before the optimiser: all ranks have the same gradient here, and end together.
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[no-untyped-call]
        scaled = self.accelerator.scaler is not None  # float16 overflows now and then and skips the step
        self._non_finite.refuse(self, None if scaled else norm)
        return norm

    # Logs.

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log a training window's metrics as ratios of sums, beside what `SFTTrainer` logs."""
        if "loss" in logs and "eval_loss" not in logs:
            sums = self._sums["train"].total(self.accelerator)
            self._sums["train"].reset()
            self._counter.input_tokens += int(sums["input_tokens"])
            metrics = summarise(sums, self.objective, has_numbers=self.has_numbers, training=True)
            logs.update(metrics, num_tokens=self._counter.input_tokens)
            self._warn_of_low_logit(metrics)
        if "train_loss" in logs:  # of the whole run, not of the steps since it was resumed
            total = self._counter.loss_before + self._total_loss_scalar
            logs["train_loss"] = total / max(self.state.global_step, 1)
        super().log(logs, start_time)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Evaluate; `loss` and the digit metrics are ratios of sums over the whole evaluation set."""
        self._sums["eval"].reset()
        output = super().evaluation_loop(*args, **kwargs)
        prefix = kwargs.get("metric_key_prefix", "eval")
        sums = self._sums["eval"].total(self.accelerator)
        if sums["batches"] and output.metrics is not None:
            metrics = summarise(sums, self.objective, has_numbers=self.has_numbers, training=False)
            output.metrics.update({f"{prefix}_{name}": value for name, value in metrics.items()})
            output.metrics[f"{prefix}_num_tokens"] = self._counter.input_tokens
        return output

    def _get_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """Return the parent's dataloader; a batch of an evaluation also says how long each of its rows is."""
        collator = self.data_collator
        if not kwargs.get("is_training"):
            self.data_collator = WithRowLengths(evaluation_collator(collator, self.args))
        try:
            return super()._get_dataloader(*args, **kwargs)
        finally:
            self.data_collator = collator

    def prediction_step(
        self,
        model: Any,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> Any:
        """Evaluate one batch; rows that only fill up the last distributed batch are not counted."""
        inputs = self._prepare_inputs(inputs)
        lengths = inputs.pop(ROW_LENGTHS, None)
        state = self.accelerator.gradient_state
        processes = self.accelerator.num_processes
        filled_up = processes > 1 and state.end_of_dataloader and state.remainder > 0
        if filled_up and lengths is not None and inputs.get("labels") is not None:
            own = state.remainder - self.accelerator.process_index * len(lengths)
            inputs["labels"] = without_last_rows(inputs["labels"], lengths, max(0, min(len(lengths), own)))
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def _warn_of_low_logit(self, metrics: dict[str, float]) -> None:
        loss = self.objective.number_loss
        if (
            self._warned_of_low_logit
            or loss is None
            or not loss.depends_on_level
            or not metrics.get("digits_per_step")
        ):
            return
        if metrics["digit_logit"] < _LOW_LOGIT:
            self._warned_of_low_logit = True
            logger.warning(
                "The mean raw digit logit is %.2f, below %g: %r depends on the absolute level of the logits "
                "and can push the right digit down there; see `python -m numsft.diagnose`, and the options "
                "`level` and `detach_weight`.",
                metrics["digit_logit"],
                _LOW_LOGIT,
                loss.name,
            )

    # Checkpoints and cards.

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # What has been summed since the last log goes into the checkpoint, so that a resumed window is whole.
        sums = self._sums["train"].total(self.accelerator)
        self._sums["train"].reset(sums if self.accelerator.is_main_process else None)
        self._counter.window = sums
        self._counter.loss_sum = self._counter.loss_before + self._total_loss_scalar + float(self._tr_loss)
        if not weights_are_finite(self.model, self.accelerator, self._broken_before):
            raise RunError(self._non_finite.of_weights(self))
        self._write_checkpoint(model, trial)

    def _write_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint that counts from the moment it is whole, and delete older ones only then."""
        folder = f"{self._get_output_dir(trial=trial)}/checkpoint-{self.state.global_step}"
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        with writing(folder, str(self.args.output_dir)):
            try:
                if self.args.should_save:
                    checkpoints.begin(folder)
                self.accelerator.wait_for_everyone()
                super()._save_checkpoint(model, trial)  # type: ignore[no-untyped-call]
            finally:
                self.args.save_total_limit = limit
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                best = self.state.best_model_checkpoint
                checkpoints.commit(folder, limit=limit, keep=[best] if best else [])

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        # PEFT writes its own stub of a card into every folder that it saves to; ours replaces it.
        with named_base(self.model, self.card.base_model, output_dir or str(self.args.output_dir)):
            super()._save(output_dir, state_dict)
        hub.write_model_card(self, output_dir)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; on resume the token count and an unfinished logging window go on where they stopped."""
        self._counter.on_resume = self._restore_window
        self._open_hub()
        self._broken_before = [name for name, broken in weights_not_finite(self.model).items() if broken]
        return super().train(*args, **kwargs)

    def _restore_window(self, window: dict[str, float]) -> None:
        self._sums["train"].reset(window if self.accelerator.is_main_process else None)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write the model card: base, objective, data, versions, how to load."""
        if self.is_world_process_zero():
            hub.write_model_card(self)

    # Checks.

    def _number_vocab(self) -> NumberVocab:
        try:
            vocab = NumberVocab.from_tokenizer(self._tokenizer)
        except ValueError:
            if self.objective.number_loss is not None:
                raise
            return NumberVocab.empty()
        self.objective.check_vocab(vocab)
        return vocab.to(self.accelerator.device)

    def _noise_seed(self) -> int:
        """A seed that differs by run seed and step, and comes back on resume; rows add their own."""
        return hash((self.args.seed, self.state.global_step))


class _RunState(TrainerCallback, ExportableState):
    """What a run has counted, kept in `trainer_state.json`."""

    def __init__(self) -> None:
        self.input_tokens = 0
        self.window: dict[str, float] | None = None
        self.loss_sum = self.loss_before = 0.0  # over the steps so far, and over those before the resume
        self.on_resume: Any = None

    def state(self) -> dict[str, Any]:
        names = ("input_tokens", "window", "loss_sum")
        return {"args": {}, "attributes": {name: getattr(self, name) for name in names}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.on_resume is not None:
            stored = state.stateful_callbacks.get(type(self).__name__)
            resumed = state.global_step > 0 and isinstance(stored, dict)
            attributes = stored["attributes"] if resumed else {}
            self.input_tokens = attributes.get("input_tokens", 0)
            self.window = attributes.get("window")
            self.loss_before = attributes.get("loss_sum", 0.0)
            self.on_resume(self.window)


def _launched_parallelism() -> ParallelismConfig | None:
    """Return what `accelerate launch` was told, as `Accelerator` itself will read it."""
    told = os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG", "false").lower() == "true"
    return ParallelismConfig() if told else None


def _refuse_sharded_sequences(config: ParallelismConfig | None) -> None:
    """Raise `UserError` where accelerate's `ParallelismConfig` would cut rows or the head apart."""
    if config is None:
        return
    for name, size in (("context", config.cp_size), ("sequence", config.sp_size), ("tensor", config.tp_size)):
        if size > 1:
            raise UserError(
                f"{name} parallelism of size {size} is not supported: it cuts rows or the head apart, and "
                "numbers with them; use data parallelism (DDP, FSDP2 or ZeRO) with packing instead."
            )


def _as_num_sft_config(args: TrainingArguments | None) -> NumSFTConfig:
    if args is None:
        return NumSFTConfig(output_dir="numsft-output")
    if isinstance(args, NumSFTConfig):
        return args
    known = {f.name for f in dataclasses.fields(NumSFTConfig) if f.init}
    settings = {f.name: getattr(args, f.name) for f in dataclasses.fields(args) if f.init and f.name in known}
    return NumSFTConfig(**settings)


def _input_tokens(inputs: dict[str, Any]) -> Any:
    """Tokens read, padding aside."""
    if "attention_mask" in inputs:
        return inputs["attention_mask"].sum()
    return inputs["input_ids"].numel()
