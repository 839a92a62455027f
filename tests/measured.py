"""The last that the server of forked.py imports: what each of its processes would do again.

It measures the processor, and has garbage collection leave alone what has been loaded: to look
through it copies all of its memory.
"""

import gc

import torch

from nanospeech_torch.train.scale.profile import peak_flops

torch.set_num_threads(1)
peak_flops("cpu:0", "no")
gc.collect()
gc.freeze()
