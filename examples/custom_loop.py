"""A training loop of one's own: cross-entropy from the model, and `number_loss` on its logits beside it.

    python examples/custom_loop.py [MODEL [STEPS]]

For loops that have the full logits anyway. `NumSFTTrainer` gives the same loss without building them, and
counts digits over all micro-batches and ranks of a step; this loop has one micro-batch a step.
"""

import random
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from numsft import NumberVocab, number_loss

name, steps = sys.argv[1:] + ["HuggingFaceTB/SmolLM2-135M", "20"][len(sys.argv) - 1 :]
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).train()
tokenizer = AutoTokenizer.from_pretrained(name)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
vocab = NumberVocab.from_tokenizer(tokenizer)  # which tokens are numbers; the tokenizer is only read
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)

draw = random.Random(0)
for step in range(int(steps)):
    pairs = [(draw.randint(0, 99), draw.randint(0, 99)) for _ in range(8)]
    prompts = [f"{a} + {b} = " for a, b in pairs]
    batch = tokenizer(
        [prompt + str(a + b) for prompt, (a, b) in zip(prompts, pairs, strict=True)],
        padding=True,
        padding_side="right",
        return_tensors="pt",
    )
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    for row, prompt in enumerate(prompts):
        labels[row, : len(tokenizer(prompt)["input_ids"])] = -100  # only the answer is trained

    output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels)
    digits = number_loss(output.logits, labels, vocab, "del", place_weighting="float")
    loss = output.loss + 0.01 * digits  # the weight is yours; see the table of losses in the README
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step + 1}: token loss {output.loss.item():.3f}, number loss {digits.item():.3f}")
