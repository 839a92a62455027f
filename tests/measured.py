"""Measures the processor once for all forked processes of tests, each of which would do so."""

import torch

from nanospeech_torch.train.scale.profile import peak_flops

torch.set_num_threads(1)
peak_flops("cpu:0", "no")
