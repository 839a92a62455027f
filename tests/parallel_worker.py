"""What each gloo process of the parallel tests runs: a short training with fixed global batches."""

from __future__ import annotations

import multiprocessing
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from nanospeech_torch.dit import DiT
from nanospeech_torch.duration import DurationTransformer
from nanospeech_torch.flow import Batch, DurationPredictor, LossConfig, Nanospeech
from nanospeech_torch.parallel import Parallel, ParallelConfig, local
from nanospeech_torch.speed import SpeedConfig, apply_speed

SIZES = {"dim": 32, "depth": 2, "heads": 4, "dim_head": 16, "text_dim": 32, "conv_layers": 1}
SPEECH = {**SIZES, "n_mels": 20, "text_num_embeds": 30, "dropout": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "published": SPEECH,
    "aligned": {
        **SPEECH,
        **{"text_upsampling": "aligned", "patch_size": 2, "qk_norm": True, "rope_heads": 3},
    },
    "duration": {**SPEECH, "rope_heads": 2, "qk_norm": True},
}
GLOBAL_BATCH, STEPS = 4, 20


def objective(name: str, seed: int = 0, device: str = "cpu") -> Any:
    """A tiny model with its loss; the same weights at every call."""
    torch.manual_seed(seed)
    with torch.device(device):
        if name == "duration":
            return DurationPredictor(DurationTransformer(**MODELS[name]))
        return Nanospeech(DiT(**MODELS[name]), loss=LossConfig())


def global_batch(step: int) -> Batch:
    """Smooth made-up mels with short texts; clips have different lengths."""
    rng = torch.Generator().manual_seed(step)
    b, n, t = GLOBAL_BATCH, 48, 8
    lens = torch.randint(24, n + 1, (b,), generator=rng)
    tokens = torch.randint(3, t + 1, (b,), generator=rng)
    text = torch.randint(0, 30, (b, t), generator=rng)
    mel = torch.randn(b, n, 20, generator=rng).cumsum(1) * 0.3
    place = torch.arange(n)
    return Batch(
        mel=mel.masked_fill((place >= lens[:, None])[..., None], 0),
        lens=lens,
        text=text.masked_fill(torch.arange(t) >= tokens[:, None], -1),
        noise=torch.randn(b, n, 20, generator=rng),
        time=torch.rand(b, generator=rng),
        span=(place >= lens[:, None] // 3) & (place < lens[:, None]),
        drop_audio=torch.rand(b, generator=rng) < 0.3,
        drop_text=torch.rand(b, generator=rng) < 0.2,
        prompt=lens // 2,
    )


def part(batch: Batch, rank: int, world: int) -> Batch:
    """The clips of one data rank."""
    return Batch(**{k: v[rank::world] for k, v in vars(batch).items()})


def optimizers(model: torch.nn.Module, kind: str) -> list[torch.optim.Optimizer]:
    """AdamW over all, or Muon over the blocks' matrices and AdamW over the rest.

    The large eps keeps gradients that are zero but for rounding (a key's bias, where nothing
    rotates) from being blown up to whole steps in directions of chance.
    """
    params = dict(model.named_parameters())
    matrices = {
        n: p for n, p in params.items() if "blocks" in n and p.ndim == 2 and "norm" not in n
    }
    if kind == "adamw":
        return [torch.optim.AdamW(params.values(), lr=2e-3, eps=1e-5, fused=True)]
    rest = [p for n, p in params.items() if n not in matrices]
    return [
        torch.optim.Muon(matrices.values(), lr=2e-3),
        torch.optim.AdamW(rest, lr=2e-3, eps=1e-5, fused=True),
    ]


def train(accelerator: Any, job: dict[str, Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss and gradient norm of every step (steps, 2), and the final weights (on rank 0).

    Args:
        job: "model" of MODELS; "split" of ParallelConfig; and, at will, "optimizer", "accumulate",
            "speed" (SpeedConfig's fields), "device" to build on, "steps" and "other_seeds".
    """
    seed = accelerator.process_index if job.get("other_seeds") else 0
    model = objective(job["model"], seed, job.get("device", "cpu"))
    parallel = Parallel(accelerator, ParallelConfig(**job["split"]), model)
    optims = optimizers(model, job.get("optimizer", "adamw"))
    speed = partial(apply_speed, config=SpeedConfig(**job.get("speed", {})), backend="aot_eager")
    forward = parallel.wrap(model, optims, speed)
    rows, accumulate = [], job.get("accumulate", 1)
    for step in range(job.get("steps", STEPS)):
        total = torch.zeros(())
        for micro in range(accumulate):
            batch = part(
                part(global_batch(step), micro, accumulate), parallel.data_rank, parallel.data_world
            )
            with parallel.no_sync(micro < accumulate - 1), accelerator.autocast():
                sums = forward(batch)
                loss = sum(
                    model.weights()[name] * value / parallel.reduce(count.float())
                    for name, (value, count) in sums.items()
                )
                loss = loss / accumulate
                (loss * parallel.data_world).backward()
            total += loss.detach()
        params = list(model.parameters())
        norm = parallel.grad_norm(params)
        parallel.clip_(params, norm, 1.0)
        for optimizer in optims:
            optimizer.step()
            optimizer.zero_grad()
        rows.append(torch.stack([parallel.reduce(total), norm]))
    return torch.stack(rows), parallel.full_state(model.state_dict())


def process(folder: Path, port: int, rank: int, world: int, jobs: dict[str, Any]) -> None:
    """One process, as a launcher would start it; does the jobs one after the other."""
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    for name, job in jobs.items():
        if name == "held":
            held_bytes(accelerator, job, folder)
            continue
        losses, weights = train(accelerator, job)
        if rank == 0:
            save_file({**weights, "losses": losses}, folder / f"{name}.safetensors")
        else:
            assert not weights
    torch.distributed.destroy_process_group()


def held_bytes(accelerator: Any, job: dict[str, Any], folder: Path) -> None:
    """Each process writes the bytes of weights that every process holds."""
    model = objective(job["model"])
    parallel = Parallel(accelerator, ParallelConfig(**job["split"]), model)
    parallel.wrap(model, [])
    everyone = parallel.gather(sum(local(p).nbytes for p in model.parameters()))
    assert parallel.broadcast(parallel.rank) == 0
    (folder / f"held-{parallel.rank}").write_text(" ".join(map(str, everyone)))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch(folder: Path, world: int, jobs: dict[str, Any]) -> None:
    """Does jobs in `world` processes, forked from a server that has imported torch once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.parallel_worker", "accelerate"])
    port = free_port()
    workers = [
        context.Process(target=process, args=(folder, port, rank, world, jobs))
        for rank in range(world)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
        if worker.exitcode is None:
            worker.kill()
            worker.join()
    codes = [worker.exitcode for worker in workers]
    assert codes == [0] * world, f"exit codes {codes}"
