"""Settings every test shares: no network, no telemetry, few threads."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start

import torch
from hypothesis import settings

torch.set_num_threads(1)

# A time limit on single examples fails where other tests share the cores, and says nothing of the code.
settings.register_profile("numsft", deadline=None)
settings.load_profile("numsft")
