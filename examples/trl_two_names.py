"""A plain TRL script turned into numsft: two names have changed, `SFTConfig` and `SFTTrainer`, nothing else.

    python examples/trl_two_names.py [MODEL [OUTPUT_DIR [STEPS]]]

Trains a LoRA adapter on sums with cross-entropy and the Digit Entropy Loss.
"""

import random
import sys

from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

from numsft import NumSFTConfig, NumSFTTrainer  # was: from trl import SFTConfig, SFTTrainer

model, output_dir, steps = (
    sys.argv[1:] + ["HuggingFaceTB/SmolLM2-135M", "outputs/sums", "100"][len(sys.argv) - 1 :]
)

draw = random.Random(0)
pairs = [(draw.randint(0, 99), draw.randint(0, 99)) for _ in range(1000)]
dataset = Dataset.from_dict(
    {"prompt": [f"{a} + {b} = " for a, b in pairs], "completion": [str(a + b) for a, b in pairs]}
)

trainer = NumSFTTrainer(  # was: SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(model),
    args=NumSFTConfig(  # was: SFTConfig(
        output_dir=output_dir,
        max_steps=int(steps),
        per_device_train_batch_size=8,
        learning_rate=5e-4,
        logging_steps=10,
        report_to="none",
        # number_loss="ntl_was",  another loss, where `del` is not wanted
    ),
    train_dataset=dataset,
    processing_class=AutoTokenizer.from_pretrained(model),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
