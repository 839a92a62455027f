"""Run: from a RunConfig to a model, its optimizers, a trainer, and training. Knows no loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from nanospeech.cli import counted
from nanospeech.config import AudioConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import CodecConfig
from nanospeech.release.folder import VOCODER, Release, open_release
from nanospeech.release.text_encoder import read_text_encoder
from nanospeech.text.languages import base_code
from nanospeech.text.pieces import PieceTokenizer
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech_torch.dit import DiT
from nanospeech_torch.duration import DurationTransformer
from nanospeech_torch.echo.network import EchoDiT
from nanospeech_torch.engine import weightless
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.latents import multiple_of
from nanospeech_torch.train.data.sources import find_shards
from nanospeech_torch.train.loop.config import TrainerOptions, TrainOptions
from nanospeech_torch.train.loop.trainer import (
    DurationTrainer,
    EchoTrainer,
    NanospeechTrainer,
    Trainer,
    VocoderTrainer,
)
from nanospeech_torch.train.objectives.duration import DurationPredictor
from nanospeech_torch.train.objectives.echo import Echo
from nanospeech_torch.train.objectives.flow import Nanospeech, keep_reading_
from nanospeech_torch.train.objectives.text_aligner import TextAligner
from nanospeech_torch.train.objectives.text_reader import TextReader, find_encoder
from nanospeech_torch.train.objectives.vocoder_gan import VocoderGAN
from nanospeech_torch.train.optim.mup import base_shapes, scale_outputs_
from nanospeech_torch.train.optim.optimizers import build_optimizers
from nanospeech_torch.train.scale.echo_page import echo_page
from nanospeech_torch.train.scale.profile import vocoder_flops
from nanospeech_torch.vocoder import Vocos, sanitize

from .config import TAUGHT, DataConfig, RunConfig
from .initial import float_weights, grown, load_objective
from .scale import estimate
from .students import (
    build_listener,
    build_student,
    build_understood,
    find_teacher,
    listener_config,
    unlike,
)

TRAINERS: dict[str, type[Trainer]] = {
    "speech": NanospeechTrainer,
    "echo": EchoTrainer,
    "distilled": NanospeechTrainer,
    "understood": NanospeechTrainer,
    "duration": DurationTrainer,
    "listener": Trainer,
    "vocoder": VocoderTrainer,
}


def build_tokenizer(data: DataConfig, tags: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a run.

    Args:
        tags: of an EchoDiT (echo.text_tags), beside the pieces of a tokenizer.json.

    Raises:
        InputError: characters without a vocab.txt, or one that cannot be read.
    """
    language = base_code(data.language) if data.language else ""
    if data.tokenizer == "phonemes" and data.vocab is None:
        return Tokenizer("phonemes", phoneme_vocab()).with_language(language)
    if data.tokenizer == "chars" and data.vocab and not Path(data.vocab).exists():
        raise InputError(
            f"there is no file {data.vocab}; nanospeech prepare vocab makes it of the recordings'"
            " texts, and data.vocab names it"
        )
    if data.tokenizer == "pieces" and data.vocab:
        return PieceTokenizer(data.vocab, tags).with_language(language)
    if data.tokenizer in ("bytes", "echo") or data.vocab:
        return Tokenizer.load(data.tokenizer, data.vocab or "").with_language(language)
    raise InputError(
        "data.vocab should name the vocab.txt of the characters, or the tokenizer.json of pieces"
    )


def build_objective(config: RunConfig, tokenizer: Tokenizer | None) -> Any:
    """The model with its loss, on the default device; random weights of the run's seed."""
    torch.manual_seed(config.train.seed)
    if config.model == "vocoder":
        vocoder = Vocos(config.vocoder)
        if config.initial:
            take_vocoder(vocoder, open_release(config.initial))
        return VocoderGAN(vocoder, config.audio, config.vocoder_loss, config.train.seed)
    if config.model == "distilled":
        return build_student(config)
    if config.model == "understood":
        return build_understood(config)
    if config.model == "listener":
        return build_listener(config)
    assert tokenizer is not None
    if config.model == "speech":
        if config.initial:
            return start_from(config, tokenizer)
        network = DiT(replace(config.dit, text_num_embeds=len(tokenizer)))
        return Nanospeech(network, tokenizer, config.audio, config.loss)
    if config.model == "echo":
        return build_echo(config, tokenizer)
    transformer = DurationTransformer(replace(config.duration, text_num_embeds=len(tokenizer)))
    return DurationPredictor(transformer, tokenizer, config.audio)


def build_echo(config: RunConfig, tokenizer: Tokenizer) -> Echo:
    """An EchoDiT with its loss.

    Raises:
        InputError: latents of another width than the network's, or no text encoder.
        CheckpointError: the text encoder cannot be read, or its states have another width.
    """
    network, audio, loss = config.echo, config.audio, config.echo_loss
    if loss.latents == "dacvae" and audio == AudioConfig():
        codec = CodecConfig()
        audio = AudioConfig(codec.sample_rate, hop_length=codec.hop_length, n_mels=codec.latent_dim)
    if audio.n_mels != network.latent_dim:
        raise InputError(
            f"the latents ({loss.latents}) are {audio.n_mels} wide, echo.latent_dim is"
            f" {network.latent_dim}; make them equal"
        )
    reader = None
    if network.text_depth:
        network = replace(network, text_vocab=len(tokenizer))
    elif loss.text_encoder is not None:
        files = read_text_encoder(find_encoder(loss.text_encoder))
        if files.width != network.text_input:
            raise CheckpointError(
                f"the states of {loss.text_encoder} are {files.width} wide, echo.text_input is"
                f" {network.text_input}; make them equal"
            )
        with torch.device("cpu"):  # published weights, which are not drawn
            reader = TextReader(files, not loss.text_encoder_lr, loss.text_cache)
    aligner = None
    if network.text_window:
        aligner = find_aligner(loss.aligner, loss.latents, audio, tokenizer)
    return Echo(EchoDiT(network), tokenizer, audio, loss, reader, aligner)


def find_aligner(
    folder: str | None, latents: str, audio: AudioConfig, tokenizer: Tokenizer
) -> TextAligner:
    """The speech model of a release that aligns tokens.

    Raises:
        InputError: it aligns nothing, or other mels or tokens.
    """
    release = open_release(folder)
    dit, own = release.config.dit, release.config.audio
    mels = [(a.sample_rate, a.hop_length, a.n_mels) for a in (audio, own)]
    fits = latents == "mels" and mels[0] == mels[1] and release.tokenizer.vocab == tokenizer.vocab
    if not fits or release.config.echo or dit.text_upsampling != "aligned":
        raise InputError(
            f"echo.text_window needs the durations of tokens, and {release.folder} has none for"
            f" {latents} {mels[0]} and these tokens; name a model of the same mels and tokens with"
            " dit.text_upsampling=aligned as echo_loss.aligner, or set echo.text_window=0"
        )
    with torch.device("cpu"):
        return TextAligner(load_objective(release).transformer, own)


def take_vocoder(vocoder: Vocos, release: Release) -> None:
    """Gives a vocoder the weights of a release folder's.

    Raises:
        InputError: the folder has none, or one of another size.
    """
    known = release.config.vocoder
    if not release.has(VOCODER) or known != vocoder.config:
        raise InputError(
            f"{release.folder} has another vocoder: {known}; the run wants {vocoder.config}"
        )
    vocoder.load_state_dict(sanitize(float_weights(release, VOCODER)))


def start_from(config: RunConfig, tokenizer: Tokenizer) -> Nanospeech:
    """The speech model of config.initial, which has to be the one that the run describes.

    It may grow: speaker conditioning of the aligner (dit.aligner_dim), statistics of the prompt
    (dit.prompt_dim) and more blocks (dit.depth). New parts are initialised as identities, so that
    the model's output is unchanged at first.

    Raises:
        InputError: its network, tokens or mels are other ones, or the run splits its model.
    """
    assert config.initial is not None
    objective = load_objective(config.initial, loss=config.loss)
    known, vocab = objective.transformer, objective.tokenizer
    assert isinstance(vocab, Tokenizer)
    if vocab.vocab != tokenizer.vocab:
        raise InputError(
            f"{config.initial} has another vocabulary, {unlike(vocab.vocab, tokenizer.vocab)}; the"
            f" run has one {unlike(tokenizer.vocab, vocab.vocab)}: set data.tokenizer={vocab.kind}"
            f" and data.vocab to the vocab.txt of {config.initial}; new letters are added to it by"
            " nanospeech finetune --extend-vocab"
        )
    wanted = replace(config.dit, text_num_embeds=len(tokenizer))
    objective = Nanospeech(grown(known, wanted), vocab, objective.audio, config.loss)
    for name, got, want in (
        ("dit", objective.transformer.config, wanted),
        ("audio", objective.audio, config.audio),
    ):
        if differ := [
            f"{name}.{key} {value}, not {asdict(want)[key]}"
            for key, value in asdict(got).items()
            if value != asdict(want)[key]
        ]:
            raise InputError(f"{config.initial} has {'; '.join(differ)}: set the run's to it")
    if config.parallel.shard > 1 or config.parallel.tensor > 1:
        raise InputError("initial starts a model that is whole on every process: shard, tensor: 1")
    if config.keep_reading:
        keep_reading_(objective.transformer)
    return objective


def build_trainer(config: RunConfig, **accelerate_kwargs: Any) -> Trainer:
    """A trainer with its model and optimizers; reads no data.

    A model that is split over processes is built on the meta device and filled part by part.
    """
    # reads no texts, or as its teacher does
    carried = config.model in ("vocoder", *TAUGHT)
    tags = config.echo.text_tags if config.model == "echo" else ()
    tokenizer = None if carried else build_tokenizer(config.data, tags)
    split = config.parallel.shard > 1 or config.parallel.tensor > 1
    base = config.optimizer.mup_base_dim
    with torch.device("meta" if split and not base else "cpu"):
        objective = build_objective(config, tokenizer)
    if base and not config.initial and not config.teacher:  # those are trained already
        scale_outputs_(objective, base_shapes(objective, base))
    optimizers = [
        optimizer
        for params in objective.phases().values()
        for optimizer in build_optimizers(objective, config.optimizer, params)
    ]
    # left out, it is what accelerate was configured or launched with
    precision = {"mixed_precision": config.mixed_precision} if config.mixed_precision else {}
    return TRAINERS[config.model](
        objective,
        optimizers,
        config.warmup_steps,
        {**precision, **accelerate_kwargs},
        config.run_dir,
        TrainerOptions(config.train, config.parallel, config.speed, config.log, config.to_dict()),
    )


def train_options(config: RunConfig, **more: Any) -> TrainOptions:
    """Settings of a call of train(), as a config has them.

    Args:
        more: those that it has not: resume, minutes and on_sample.
    """
    data = config.data
    return TrainOptions(
        data.batch_size,
        data.max_batch_frames,
        data.max_duration,
        data.workers,
        config.save_step,
        cache_bytes=data.cache_mb * 2**20,
        **more,
    )


def dry_run(config: RunConfig) -> str:
    """Sizes, work and memory of a run; allocates no weights and reads its vocabulary alone."""
    if config.model in ("distilled", "understood"):
        release = find_teacher(config)
        dit = release.config.dit
        if config.model == "distilled":
            dit = replace(dit, max_strength=config.distill.max_strength)
        trained = replace(config, model="speech", teacher=None, dit=dit, audio=release.config.audio)
        weights = estimate.count_weights(release.config.dit)["total"]
        return (
            f"{estimate.dry_run(trained, len(release.tokenizer))}\n\nnot in it: the teacher, "
            f"{weights:,} weights without gradients, its evaluations, the {config.model} model's "
            "further ones in a step, and listeners"
        )
    if config.model == "listener":
        with weightless():
            network = Listener(listener_config(config, find_teacher(config)))
        return f"{sum(p.numel() for p in network.parameters()):,} weights"
    if config.model == "echo":
        network = config.echo
        if network.text_depth:
            network = replace(network, text_vocab=len(build_tokenizer(config.data)))
        carry = config.speed.compile != "off"
        plan = train_options(config).plan(config.train, carry, multiple_of(network))
        return echo_page(network, config, plan)
    if config.model != "vocoder":
        try:
            tokens = len(build_tokenizer(config.data))
        except (InputError, CheckpointError):  # a vocab.txt that is yet to be made
            return estimate.dry_run(config)
        return estimate.dry_run(config, tokens)
    with weightless():
        objective = build_objective(config, None)
    batch, frames = config.data.batch_size, config.vocoder_loss.frames
    flops = vocoder_flops(config.vocoder, batch, frames)
    lines = ["weights"]
    for name, params in objective.phases().items():
        lines.append(f"  {name:<22}{sum(p.numel() for p in params):>16,}")
    lines += [
        "",
        f"a micro-batch of one process: {batch} segments x {frames} frames = {batch * frames:,} "
        f"frames, {flops / 1e9:,.1f} GFLOP forward and backward, discriminators not counted",
    ]
    return "\n".join(lines)


def find_data(config: RunConfig) -> list[str]:
    """The shards of a run.

    Raises:
        InputError: there are none, or none of those that log.held_out names.
    """
    if not config.data.shards:
        raise InputError("data.shards is empty; name the tar files to train on")
    try:  # before the model is built
        find_shards(config.log.held_out)
    except InputError as e:
        raise InputError(f"log.held_out: {e}") from e
    return find_shards(config.data.shards)


def going_on(resume: str, run_dir: str | Path) -> str:
    """How a run resumes, where SLURM may have put its job into the queue again.

    Such a job repeats its command, but not the start that --resume never or a path has asked for.
    """
    again = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
    begun = resume == "never" or (Path(run_dir) / "latest").is_file()
    return "auto" if again and begun else resume


def train(
    config: RunConfig,
    resume: str = "auto",
    minutes: float | None = None,
    on_sample: Callable[[Trainer], None] | None = None,
) -> Trainer:
    """Trains what a config says; resume, minutes and on_sample are those of Trainer.train.

    Within a job that SLURM started again, resume is that of going_on.
    """
    files = find_data(config)
    trainer = build_trainer(config)
    count = sum(p.numel() for p in trainer.core.parameters())
    trainer.say(f"{count:,} parameters, {counted(len(files), 'shard')}")
    how = going_on(resume, config.run_dir)
    if how != resume:
        trainer.say(f"SLURM started this job again: --resume {resume} was for its first start")
    options = train_options(config, resume=how, minutes=minutes, on_sample=on_sample)
    trainer.train_with(files, config.total_steps, options)
    # by the clock, total_steps is no goal
    steps = trainer.step if config.train.minutes else f"{trainer.step} of {config.total_steps}"
    trainer.say(f"{steps} steps are done: {trainer.checkpoints.newest()}")
    return trainer
