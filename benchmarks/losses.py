"""What each loss adds to the head's time: number losses with 10 and 1,110 classes, EMO against CE.

    python benchmarks/losses.py --tokens 256 --output benchmarks/results/losses_cpu.json

The head alone, in one process, on random hidden states; a fifth of the labels are number tokens. Each round
times every contender once, every second one backwards, so that a drift of the machine's speed meets all of
them; a ratio is the median over rounds of the time with the loss over that without, in the same round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from measure import command, environment, interleave, spread
from torch import Tensor

from numsft.head import chunked_head
from numsft.losses import NUMBER_LOSSES
from numsft.microbatch import StepCounts, head_batch
from numsft.numerals import NumberVocab
from numsft.objective import Objective

BOUNDS = {"digit": 1.03, "integer": 1.10, "emo": 2.2}
"""What the time with a loss, over that of CE alone, must not exceed."""


def vocabulary(kind: str, width: int) -> NumberVocab:
    """The ten digits, or 1,110 tokens: 0..9, 00..99, 000..999."""
    texts = [f"{n:0{d}}" for d in (1, 2, 3) for n in range(10**d)]
    texts = texts[:10] if kind == "digit" else texts
    ids = torch.arange(width // 2, width // 2 + len(texts))
    values = torch.tensor([float(t) for t in texts])
    lengths = torch.tensor([len(t) for t in texts])
    return NumberVocab(ids, values, lengths, torch.tensor([7]), kind)


def contenders() -> dict[str, tuple[str, Objective]]:
    """Name -> kind of vocabulary and objective; `ce` and `ce, 1110` are what the others are held against."""
    found = {
        "ce": ("digit", Objective.build("ce", None)),
        "ce, 1110": ("integer", Objective.build("ce", None)),
    }
    for name, loss in NUMBER_LOSSES.items():
        found[name] = ("digit", Objective.build("ce", name))
        if not loss.single_digits_only:
            found[f"{name}, 1110"] = ("integer", Objective.build("ce", name))
    for mode in (1, 2):
        found[f"emo, mode {mode}"] = ("digit", Objective.build("emo", None, token_loss_kwargs={"mode": mode}))
    return found


def seconds(
    hidden: Tensor, weight: Tensor, labels: Tensor, vocab: NumberVocab, objective: Objective
) -> float:
    """Time one forward and backward pass of the head with a trained weight."""
    leaf, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    digits = torch.isin(labels, vocab.token_ids).sum().float()
    counts = StepCounts(torch.tensor(float(labels.numel())), digits.cpu())
    if hidden.device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    batch = head_batch({"labels": labels}, vocab, objective, counts)
    loss, _ = chunked_head(leaf, weight, None, batch, objective)
    loss.backward()
    if hidden.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Measure, print the ratios and write them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="*", help="names of contenders beside the two of CE")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    device = torch.device(args.device)
    hidden = torch.randn(args.tokens + 1, args.hidden, device=device)
    weight = torch.randn(args.vocab, args.hidden, device=device) * 0.02
    vocabularies = {kind: vocabulary(kind, args.vocab).to(device) for kind in ("digit", "integer")}
    labels = {}
    for kind, vocab in vocabularies.items():
        text = torch.randint(100, (1, args.tokens + 1), device=device)
        numbers = vocab.token_ids[torch.randint(len(vocab.token_ids), text.shape, device=device)]
        labels[kind] = torch.where(torch.rand(text.shape, device=device) < 0.2, numbers, text)

    chosen = contenders()
    if args.only is not None:
        chosen = {n: c for n, c in chosen.items() if n.startswith("ce") or n in args.only}

    def run(name: str) -> dict[str, float]:
        kind, objective = chosen[name]
        return {"seconds": seconds(hidden, weight, labels[kind], vocabularies[kind], objective)}

    *_, figures = interleave(list(chosen), args.runs + 1, run)
    # The first round warms up.
    times = {name: [figure["seconds"] for figure in runs[1:]] for name, runs in figures.items()}
    results = {}
    for name, (kind, _) in chosen.items():
        base = times["ce" if kind == "digit" else "ce, 1110"]
        ratio = spread([a / b for a, b in zip(times[name], base, strict=True)])
        bound = BOUNDS["emo" if name.startswith("emo") else kind]
        results[name] = {"seconds": times[name], "ratio_to_ce": ratio, "bound": bound}
        print(
            f"{name:<28} {statistics.median(times[name]):8.3f} s   x {ratio['median']:.3f} "
            f"({ratio['min']:.3f} - {ratio['max']:.3f})   (bound {bound})"
        )
    if args.output:
        setup = {
            name: getattr(args, name) for name in ("tokens", "vocab", "hidden", "runs", "threads", "device")
        }
        args.output.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "command": command(),
            "setup": setup,
            "environment": environment(device, args.threads),
            "results": results,
        }
        args.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
