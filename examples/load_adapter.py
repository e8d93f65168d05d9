"""Load an adapter that numsft trained with PEFT and transformers alone: numsft need not be installed.

    python examples/load_adapter.py [ADAPTER [PROMPT]]

ADAPTER is an output folder or the repository that it was pushed to.
"""

import sys

from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

adapter, prompt = sys.argv[1:] + ["outputs/sums", "17 + 25 = "][len(sys.argv) - 1 :]

base = PeftConfig.from_pretrained(adapter).base_model_name_or_path
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
tokenizer = AutoTokenizer.from_pretrained(adapter)

inputs = tokenizer(prompt, return_tensors="pt")
output = model.generate(
    input_ids=inputs["input_ids"],
    attention_mask=inputs["attention_mask"],
    max_new_tokens=8,
    do_sample=False,
)
print(tokenizer.decode(output[0], skip_special_tokens=True))
