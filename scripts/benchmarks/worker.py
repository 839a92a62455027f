"""Times training steps of one configuration in this process; train.py starts it.

    python -m scripts.benchmarks.worker SPEC.json OUT.json

A step is that of training: forward and backward under autocast, the gradients' norm and clipping,
the optimizers, the average. Batches are synthetic and on the device; loading data is not timed.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .serve import usage

OUT_OF_MEMORY = ("out of memory", "allocate memory", "could not create a memory", "bad_alloc")


@dataclass
class Spec:
    """One cell: a model, a batch, and how it is trained.

    Args:
        model: speech, duration or echo; `config` are the fields of DiTConfig, DurationConfig or
            EchoConfig.
        batch, frames, tokens: of one process; an EchoDiT's frames are latents.
        steps, last: steps to do, and the last ones of these to time.
        parallel: replicate, shard, tensor; their product is the number of processes.
        memory: bytes of data that each process may have (CPU); None for no limit.
        batch_file: npz of mel, lens and text to train on, instead of random ones.
        cpu: leave GPUs alone.
        threads: of the CPU; torch's choice if None.
        shortest: length of the shortest item as a share of `frames`; the others lie between.
        masked: attention with a mask instead of segments.
        loop_search: the alignment's search as a loop instead of one kernel.
    """

    model: str = "speech"
    config: dict[str, Any] = field(default_factory=dict)
    batch: int = 2
    frames: int = 400
    tokens: int = 64
    steps: int = 50
    last: int = 10
    precision: str = "no"
    compile: str = "off"
    checkpoint_interval: int = 0
    checkpoint_ops: bool = False
    optimizer: dict[str, Any] = field(default_factory=dict)
    parallel: tuple[int, int, int] = (1, 1, 1)
    memory: int | None = None
    batch_file: str | None = None
    cpu: bool = False
    threads: int | None = None
    shortest: float = 1.0
    masked: bool = False
    loop_search: bool = False

    @property
    def processes(self) -> int:
        replicate, shard, tensor = self.parallel
        return replicate * shard * tensor


def build(spec: Spec, meta: bool) -> Any:
    """The model with its loss; on "meta" where it is to be split."""
    import torch

    from nanospeech.config import DiTConfig, DurationConfig, from_dict
    from nanospeech_torch.dit import DiT
    from nanospeech_torch.duration import DurationTransformer
    from nanospeech_torch.train.objectives.duration import DurationPredictor
    from nanospeech_torch.train.objectives.flow import Nanospeech

    torch.manual_seed(0)
    with torch.device("meta" if meta else "cpu"):
        if spec.model == "echo":
            return echo_objective(spec)
        if spec.model == "speech":
            return Nanospeech(DiT(from_dict(DiTConfig, spec.config, "dit")))
        network = DurationTransformer(from_dict(DurationConfig, spec.config, "duration"))
        return DurationPredictor(network)


def make_batch(spec: Spec, vocab: int, mels: int, seed: int) -> Any:
    """A batch, of full length if nothing else is said: random, or the file's with random draws."""
    import numpy as np
    import torch

    from nanospeech_torch.train.data.batch import Batch

    rng = np.random.default_rng(seed)
    b, n = spec.batch, spec.frames
    if spec.batch_file:
        with np.load(spec.batch_file) as file:
            mel, lens, text = (torch.from_numpy(file[k]) for k in ("mel", "lens", "text"))
    else:
        mel = torch.from_numpy(rng.normal(-3, 2, (b, n, mels)).astype(np.float32))
        lens = torch.linspace(spec.shortest * n, n, b).long() if b > 1 else torch.full((b,), n)
        text = torch.from_numpy(rng.integers(0, vocab, (b, spec.tokens)))
    span = torch.zeros(b, n, dtype=torch.bool)
    span[:, n // 8 :] = True
    return Batch(
        mel=mel,
        lens=lens,
        text=text,
        noise=torch.from_numpy(rng.standard_normal(tuple(mel.shape), dtype=np.float32)),
        time=torch.from_numpy(rng.random(b, dtype=np.float32)),
        span=span,
        drop_audio=torch.from_numpy(rng.random(b) < 0.3),
        drop_text=torch.from_numpy(rng.random(b) < 0.2),
        prompt=lens // 2,
    )


def echo_objective(spec: Spec) -> Any:
    """An EchoDiT with its loss; the states of a text encoder are as those of a cache."""
    import torch
    from torch import nn

    from nanospeech.config import from_dict
    from nanospeech.latent_architectures import EchoConfig
    from nanospeech_torch.echo.network import EchoDiT
    from nanospeech_torch.train.objectives.echo import Echo

    class KeptStates(nn.Module):
        def forward(self, text: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
            states = torch.linspace(-1, 1, network.text_input, device=text.device)
            return states.expand(*text.shape, -1)

    network = from_dict(EchoConfig, spec.config, "echo")
    reader: Any = None if network.text_depth else KeptStates()
    return Echo(EchoDiT(network), reader=reader)


def make_echo_batch(spec: Spec, seed: int) -> Any:
    """A batch of random latents, texts and speakers, all of full length."""
    import torch

    from nanospeech_torch.train.data.latents import EchoBatch

    c, b = spec.config, spec.batch
    draw = torch.Generator().manual_seed(seed)

    def normal(length: int) -> torch.Tensor:
        return torch.randn(b, length, c["latent_dim"], generator=draw)

    return EchoBatch(
        mel=normal(spec.frames),
        lens=torch.full((b,), spec.frames),
        text=torch.randint(0, c["text_vocab"], (b, spec.tokens), generator=draw),
        noise=normal(spec.frames),
        time=torch.rand(b, generator=draw),
        speaker=normal(c["max_speaker"]),
        heard=torch.full((b,), c["max_speaker"]),
        drop_text=torch.rand(b, generator=draw) < 0.1,
        drop_speaker=torch.rand(b, generator=draw) < 0.1,
    )


class Steps:
    """A trainer with a batch that never changes, and its step."""

    def __init__(self, spec: Spec):
        import torch

        from nanospeech_torch.train.data.speech import Loaded, StreamState
        from nanospeech_torch.train.loop.trainer import Trainer
        from nanospeech_torch.train.optim.optimizers import OptimizerConfig, build_optimizers
        from nanospeech_torch.train.scale.parallel import ParallelConfig
        from nanospeech_torch.train.scale.speed import SpeedConfig

        self.core = build(spec, meta=spec.parallel[1] * spec.parallel[2] > 1)
        self.config = self.core.transformer.config
        self.trainer = Trainer(
            self.core,
            build_optimizers(self.core, OptimizerConfig(**spec.optimizer)),
            1,
            {"mixed_precision": spec.precision, "cpu": spec.cpu},
            tempfile.mkdtemp(),  # nothing is written to it
            log_every=10**9,
            schedule="constant",
            parallel=ParallelConfig(*spec.parallel),
            speed=SpeedConfig(spec.compile, spec.checkpoint_interval, spec.checkpoint_ops),
        )
        self.device: torch.device = self.trainer.accelerator.device
        self.parallel = self.trainer.parallel
        self.trainer.model.train()
        self.log = self.trainer.new_log(spec.steps)
        rank = self.parallel.data_rank
        if spec.model == "echo":
            batch = make_echo_batch(spec, rank)
        else:
            batch = make_batch(spec, self.config.text_num_embeds, self.config.n_mels, rank)
        self.flops = self.core.flops(batch)
        self.batches = itertools.repeat(Loaded(batch.to(self.device), 0, StreamState()))

    def step(self) -> None:
        """One optimiser step of the trainer itself."""
        self.trainer.optimizer_step(self.batches, 10**9, self.log)

    def wait(self) -> None:
        """Waits for the device."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize()


def run(spec: Spec) -> dict[str, Any]:
    """Times the steps: the figures of one cell."""
    import torch

    from nanospeech_torch.train.scale.profile import mfu, peak_flops

    limit(spec.memory)
    if spec.threads:
        torch.set_num_threads(spec.threads)
    take_back(spec)
    steps = Steps(spec)
    device = steps.device
    last = min(spec.last, spec.steps)
    for _ in range(spec.steps - last):
        steps.step()
    steps.wait()
    begin, busy = time.perf_counter(), time.process_time()
    for _ in range(last):
        steps.step()
    steps.wait()
    seconds = (time.perf_counter() - begin) / last
    busy = (time.process_time() - busy) / last
    memory = memory_used(device)
    batch = spec.batch * steps.parallel.data_world
    flops = steps.flops * steps.parallel.data_world
    # processes on one machine's CPU share what it can do
    devices = spec.processes if device.type == "cuda" else 1
    peak = peak_flops(device, spec.precision)
    return {
        "status": "ok",
        "seconds_per_step": seconds,
        "cpu_seconds_per_step": busy,
        "frames_per_second": batch * spec.frames / seconds,
        "audio_seconds_per_second": batch * spec.frames / seconds / steps.core.audio.frame_rate,
        "mfu": mfu(flops, seconds, device, spec.precision, devices),
        "flops_per_step": flops,
        "peak_flops": peak.flops * devices,
        "peak_source": peak.source,
        **memory,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "processes": spec.processes,
    }


def take_back(spec: Spec) -> None:
    """Switches the optimisations off that a cell excludes."""
    import torch

    from nanospeech_torch.train.objectives import alignment as search

    if spec.masked:
        torch.backends.cuda.enable_flash_sdp(False)
    if spec.loop_search:
        search.kernel = lambda device: None  # type: ignore[assignment]


def memory_used(device: Any) -> dict[str, Any]:
    """Most memory so far, in bytes: the GPU's, or this process's resident one."""
    import torch

    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        reserved = torch.cuda.max_memory_reserved(device)
        peak = torch.cuda.max_memory_allocated(device)
        return {"peak_memory": peak, "reserved_share": reserved / total}
    unit = 1 if platform.system() == "Darwin" else 1024
    return {"peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def limit(memory: int | None) -> None:
    """Lets this process allocate no more than so many bytes (Linux)."""
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 2:
        return usage(words)
    spec_file, out_file = words
    values = json.loads(Path(spec_file).read_text(encoding="utf-8"))
    spec = Spec(**{**values, "parallel": tuple(values.get("parallel", (1, 1, 1)))})
    try:
        result = run(spec)
    except (RuntimeError, MemoryError) as e:
        text = str(e) or type(e).__name__
        if not isinstance(e, MemoryError) and not any(s in text.lower() for s in OUT_OF_MEMORY):
            raise
        result = {"status": "oom", "note": text.splitlines()[0][:200]}
    if int(os.environ.get("RANK", 0)) == 0:
        Path(out_file).write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # whatever is left of process groups is not waited for


if __name__ == "__main__":
    sys.exit(main())
