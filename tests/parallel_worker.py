"""What each gloo process of the parallel tests runs: the trainer, given fixed global batches."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from nanospeech.config import AudioConfig
from nanospeech.latent_architectures import EchoConfig
from nanospeech_torch.dit import DiT
from nanospeech_torch.duration import DurationTransformer
from nanospeech_torch.echo.network import EchoDiT
from nanospeech_torch.train.data.batch import Batch, LossConfig
from nanospeech_torch.train.data.batches import Loaded, StreamOptions
from nanospeech_torch.train.data.latents import EchoBatch
from nanospeech_torch.train.data.order import StreamState
from nanospeech_torch.train.loop import held_out
from nanospeech_torch.train.loop.config import LogConfig
from nanospeech_torch.train.loop.trainer import Trainer
from nanospeech_torch.train.objectives.duration import DurationPredictor
from nanospeech_torch.train.objectives.echo import Echo
from nanospeech_torch.train.objectives.flow import Nanospeech
from nanospeech_torch.train.objectives.text_aligner import TextAligner
from nanospeech_torch.train.scale.parallel import Parallel, ParallelConfig, local
from nanospeech_torch.train.scale.speed import SpeedConfig, apply_speed
from tests.forked import CONTEXT, free_port
from tests.training import SHARD

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
MODELS["dropped"] = {**MODELS["aligned"], "dropout": 0.25}
MODELS["shallow"] = {**MODELS["aligned"], "depth": 1}
ECHO = EchoConfig(
    latent_dim=20, latent_patch=2, dim=32, depth=2, heads=4, ff_dim=88, text_vocab=30, text_dim=16,
    text_depth=1, text_heads=2, text_ff_dim=40, speaker_dim=16, speaker_depth=1, speaker_heads=2,
    speaker_ff_dim=40, target_duration=True, text_rotary=True, time_dim=16, adaln_rank=4,
    max_latents=48, max_text=8, max_speaker=16,
)  # fmt: skip
GLOBAL_BATCH, STEPS = 4, 3
CLIPPED = 0.5  # every gradient of these models is larger


def objective(name: str, seed: int = 0, device: str = "cpu") -> Any:
    """A tiny model with its loss; the same weights at every call."""
    torch.manual_seed(seed)
    with torch.device(device):
        if name == "echo":
            return ReadyEcho(EchoDiT(ECHO))
        if name == "window":
            network = EchoDiT(dataclasses.replace(ECHO, text_window=1.0))
            aligner = TextAligner(DiT(**MODELS["aligned"]), AudioConfig(n_mels=20))
            return ReadyEcho(network, aligner=aligner)
        if name == "duration":
            return ReadyDuration(DurationTransformer(**MODELS[name]))
        return ReadySpeech(DiT(**MODELS[name]), loss=LossConfig())


def global_batch(step: int, b: int = GLOBAL_BATCH) -> Batch:
    """Smooth made-up mels with short texts; clips have different lengths."""
    rng = torch.Generator().manual_seed(step)
    n, t = 48, 8
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


def echo_batch(step: int, b: int = GLOBAL_BATCH) -> EchoBatch:
    """The same clips with another one's beginning for a speaker."""
    batch = global_batch(step, b)
    heard = torch.tensor([16, 11, 9, 14])
    speaker = batch.mel.roll(1, 0)[:, :16]
    return EchoBatch(
        mel=batch.mel,
        lens=batch.lens,
        text=batch.text,
        noise=batch.noise,
        time=batch.time,
        speaker=speaker.masked_fill((torch.arange(16) >= heard[:, None])[..., None], 0),
        heard=heard,
        drop_text=batch.drop_text,
        drop_speaker=batch.drop_audio,
    )


def part(batch: Any, rank: int, world: int) -> Any:
    """The clips of one data rank."""
    return type(batch)(**{k: v[rank::world] for k, v in vars(batch).items()})


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


class ReadyMade:
    """In front of an objective: gives the trainer the global batches' clips of each process."""

    accumulate, spoiled, clips = 1, -1, GLOBAL_BATCH
    batch: Callable[[int, int], Any] = staticmethod(global_batch)

    def batches(self, source: Any, plan: Any, stream: StreamOptions) -> Iterator[Loaded]:
        """Endless batches, a micro-batch being a part of a step's; one step's may be spoiled."""
        for number in itertools.count():
            step, micro = divmod(number, self.accumulate)
            batch = self.batch(step, self.clips)
            if step == self.spoiled:
                batch.mel[0, 0] = torch.nan  # of one clip, so of one process
            mine = part(part(batch, micro, self.accumulate), stream.rank, stream.world)
            yield Loaded(mine, 0, StreamState(stream.rank, stream.world))


class ReadySpeech(ReadyMade, Nanospeech):
    pass


class ReadyEcho(ReadyMade, Echo):
    batch = staticmethod(echo_batch)


class ReadyDuration(ReadyMade, DurationPredictor):
    pass


class EagerTrainer(Trainer):
    """The trainer; what it compiles is traced, but not made into machine code."""

    def apply_speed(self, objective: Any) -> None:
        apply_speed(objective, self.speed, 24, backend="aot_eager")


def train(folder: Path, job: dict[str, Any]) -> Trainer:
    """A run of the trainer, log.csv and a checkpoint of everything left in `folder`.

    Args:
        job: "model" of MODELS; "split" of ParallelConfig; and, at will, "optimizer", "accumulate",
            "speed" (SpeedConfig's fields), "device" to build on, "steps", "other_seeds",
            "precision", "clips" of a step, "spoiled", a step whose gradient is not finite, and
            "measured", the steps between measurements of held-out speech.
    """
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()  # jobs differ in precision
    seed = int(os.environ.get("RANK", 0)) if job.get("other_seeds") else 0
    model = objective(job["model"], seed, job.get("device", "cpu"))
    model.accumulate, model.spoiled = job.get("accumulate", 1), job.get("spoiled", -1)
    model.clips = job.get("clips", GLOBAL_BATCH)
    held_out.MOST_FRAMES = 600  # of endless batches
    measured = int("measured" in job)
    run = EagerTrainer(
        model,
        optimizers(model, job.get("optimizer", "adamw")),
        2,
        {"cpu": True, "mixed_precision": job.get("precision", "no")},
        folder,
        parallel=ParallelConfig(**job["split"]),
        speed=SpeedConfig(**job.get("speed", {})),
        log=LogConfig(held_out=[str(SHARD)] * measured, held_out_every=job.get("measured", 1)),
        schedule="constant",
        max_grad_norm=CLIPPED,
        ema_decay=0.8,
        accumulate=model.accumulate,
        log_every=1,
        export="never",
    )
    run.train([], job.get("steps", STEPS), batch_size=GLOBAL_BATCH, max_duration=48)
    return run


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
        "FORK_LAUNCHED": "1",  # accelerate's: the end of a run does not end the group
    }
    from accelerate import Accelerator

    staged = count_staged()
    for name, job in jobs.items():
        if name == "held":
            held_bytes(Accelerator(cpu=True), job, folder)
            continue
        train(folder / name, job)
        (folder / f"staged-{name}-{rank}").write_text(str(sum(staged)))
        staged.clear()
    torch.distributed.destroy_process_group()


def count_staged() -> list[int]:
    """Grows by the bytes that the checkpoint library copies to this process's memory."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    plain, found = FileSystemWriter.stage, []

    def stage(self: Any, state: dict[str, Any]) -> dict[str, Any]:
        copied = plain(self, state)
        found.extend(local(value).nbytes for value in copied.values())
        return copied

    FileSystemWriter.stage = stage  # type: ignore[method-assign]
    return found


def held_bytes(accelerator: Any, job: dict[str, Any], folder: Path) -> None:
    """Each process writes the bytes of weights that every process holds.

    And those of its gradients between two micro-batches.
    """
    model = objective(job["model"])
    parallel = Parallel(accelerator, ParallelConfig(**job["split"]), model)
    parallel.wrap(model, [])
    everyone = parallel.gather(sum(local(p).nbytes for p in model.parameters()))
    assert parallel.broadcast(parallel.rank) == 0
    whole = parallel.full_state(model.state_dict())
    assert whole.keys() == ({} if parallel.rank else model.state_dict()).keys()
    (folder / f"held-{parallel.rank}").write_text(" ".join(map(str, everyone)))
    with parallel.no_sync(accumulating=True):
        sums = parallel.model(part(global_batch(0), parallel.rank, parallel.world))
        sum(total for total, _ in sums.values()).backward()
    graded = sum(local(p.grad).nbytes for p in model.parameters() if p.grad is not None)
    (folder / f"graded-{parallel.rank}").write_text(str(graded))


def launch(folder: Path, world: int, jobs: dict[str, Any]) -> None:
    """Does jobs in `world` processes, forked from a server that has imported torch once."""
    port = free_port()
    workers = [
        CONTEXT.Process(target=process, args=(folder, port, rank, world, jobs))
        for rank in range(world)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(570)  # seconds; pytest ends a test after 600
        if worker.exitcode is None:
            worker.kill()
            worker.join()
    codes = [worker.exitcode for worker in workers]
    assert codes == [0] * world, f"exit codes {codes}"
