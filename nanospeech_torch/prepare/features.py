"""Features: encodes shards once, so that epochs of training need not decode audio again.

    nanospeech prepare features shards/*.tar --out encoded
    nanospeech prepare features shards/*.tar --out encoded --references --workers 4
    nanospeech prepare features shards/*.tar --out latents --encoder dacvae --codec weights.pth
    nanospeech prepare features shards/*.tar --out latents --encoder my_codec:encode

SHARDS are WebDataset tars (paths or URLs) of {key}.mp3 (or .flac, .wav, .ogg, .opus) and {key}.json
with "text". For each a tar of the same name is written to --out, which holds

    {key}.npy       float16 (T, C): log mels, 93.75 rows a second, or the output of --encoder
    {key}.json      its fields, and "target_duration" in seconds
    {key}.ref.npy   with --references: another clip of the speaker in the same shard, with its
                    text in the JSON as "ref_text"; in training it is the prompt

The trainers read the new tars like the old ones (data.shards: [encoded/*.tar]). With mels
the losses are bit-identical. dacvae is DAC-VAE's encoder: of 48 kHz, 25 latents of 128 numbers a
second. Any other encoder is a function of a float32 wave (n,) at 24 kHz, mono, that returns an
array (T, C); a model trained on its features needs audio.n_mels = C.

After an interruption the same command resumes; finished shards are not written again, unless their
files are newer than what was made of them. Of a URL that breaks off nothing is kept, and the same
command tries it again. Unusable clips are left out and counted; the last line is the counts as
JSON.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import json
import os
import posixpath
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from nanospeech.audio.mel import log_mel
from nanospeech.cli import Parser, command, say
from nanospeech.config import AudioConfig
from nanospeech.corpus.mp3 import in_parallel
from nanospeech.engine.codec_streaming import whole_hops
from nanospeech.errors import DataError, InputError
from nanospeech.files import whole, write_json
from nanospeech.locks import alone
from nanospeech.prepare.shards import npy
from nanospeech_torch.train.data import clips
from nanospeech_torch.train.data.sources import BROKEN, TarSource, find_shards

if TYPE_CHECKING:
    from nanospeech_torch.echo.codec import DACVAE

AUDIO = AudioConfig()
SETTINGS = "encode.json"  # how the tars of a folder were made


@dataclass(frozen=True)
class Options:
    """How clips are encoded."""

    encoder: str = "mel"
    references: bool = False
    max_seconds: float = 60.0
    codec: str | None = None  # of encoder "dacvae": weights.pth, or a release folder

    @property
    def audio(self) -> AudioConfig:
        """Sample rate and hop of what is encoded."""
        if self.encoder != "dacvae":
            return AUDIO
        c = codec_of(str(self.codec)).config
        return AudioConfig(sample_rate=c.sample_rate, hop_length=c.hop_length, n_mels=c.latent_dim)


@functools.cache
def codec_of(path: str) -> DACVAE:
    """DAC-VAE with its weights, on a GPU if there is one; read once in a process.

    Raises:
        CheckpointError: it cannot be read, or is no DAC-VAE.
    """
    import torch  # the other encoders' processes start without it

    from convert.codec import read_codec
    from nanospeech_torch.echo.codec import DACVAE

    config, tensors = read_codec(path)
    codec = DACVAE(config)
    codec.load_state_dict({n: tensors[n].float() for n in tensors})
    codec.requires_grad_(False)
    return codec.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def encode_dacvae(wave: np.ndarray, path: str) -> np.ndarray:
    """Latents (T, C) of a wave at the codec's rate, the means of its distribution."""
    import torch

    codec = codec_of(path)
    heard = torch.from_numpy(whole_hops(wave, codec.config.hop_length))[None]
    with torch.inference_mode():
        return codec.encode(heard.to(next(codec.parameters()).device))[0].cpu().numpy()


def find_encoder(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """The function that MODULE:FUNCTION names.

    Raises:
        InputError: there is none.
    """
    module, colon, function = name.partition(":")
    if not colon:
        raise InputError(f"--encoder {name!r} should be mel, dacvae or MODULE:FUNCTION")
    sys.path.insert(0, os.getcwd())  # as python -m would have it
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as e:
        raise InputError(f"--encoder {name!r}: {e}") from e
    finally:
        sys.path.pop(0)
    return found


def encoded(item: dict, options: Options) -> tuple[np.ndarray, float]:
    """Features of a described clip, float16 (T, C), and its seconds.

    Raises:
        Skip: it cannot be used.
    """
    audio = options.audio
    wave = clips.read_wave(item["data"], audio, item, options.max_seconds)
    seconds = len(wave) / audio.sample_rate
    if len(wave) <= audio.n_fft // 2 or seconds > options.max_seconds:
        raise clips.Skip("too short" if seconds < 1 else "too long")
    if options.encoder == "mel":
        return log_mel(wave, AUDIO).astype(np.float16), seconds
    if options.encoder == "dacvae":
        array = encode_dacvae(wave.astype(np.float32), str(options.codec))
    else:
        array = np.asarray(find_encoder(options.encoder)(wave.astype(np.float32)))
    if array.ndim != 2:
        raise InputError(f"--encoder {options.encoder} gave shape {array.shape}, not (T, C)")
    return clips.features(array, array.shape[1]), seconds


def read_clips(path: str, options: Options, skipped: Counter) -> Iterator[tuple[dict, dict]]:
    """(key and arrays, metadata) of each usable clip of a shard."""
    for _, sample in TarSource([path]).open(0, skipped=skipped):
        try:
            heard = {k: v for k, v in sample.items() if "npy" not in k}
            item = clips.describe(heard, options.audio)
            array, seconds = encoded(item, options)
        except clips.Skip as e:
            skipped[str(e)] += 1
            continue
        old = clips.metadata(sample) if "json" in sample else {}
        meta = {k: v for k, v in old.items() if k not in ("sample_rate", "ref_text")}
        meta |= {"text": item["text"], "target_duration": round(seconds, 4)}
        yield {"key": item["key"], "npy": array}, meta


def add_references(found: list[tuple[dict, dict]]) -> None:
    """Gives each clip the next one of its speaker; the last gets the first."""
    speakers: dict[str, list[int]] = {}
    for number, (_, meta) in enumerate(found):
        if meta.get("speaker") not in (None, ""):
            speakers.setdefault(str(meta["speaker"]), []).append(number)
    for numbers in speakers.values():
        for mine, other in zip(numbers, [*numbers[1:], numbers[0]]):
            if mine != other:
                found[mine][0]["ref.npy"] = found[other][0]["npy"]
                found[mine][1]["ref_text"] = found[other][1]["text"]


def shard_name(path: str) -> str:
    """The file's name of a path or URL."""
    return posixpath.basename(path.partition("?")[0].replace(os.sep, "/"))


def extract_shard(path: str, out: Path, options: Options) -> tuple[int, Counter]:
    """Writes a shard's features, whole or not at all; returns clips written and left out.

    None of a remote shard that broke off: the same command tries it again.
    """
    skipped: Counter = Counter()
    found: Iterable[tuple[dict, dict]] = read_clips(path, options, skipped)
    if options.references:
        found = list(found)
        add_references(found)
    target = out / shard_name(path)
    count = 0
    with whole(target, sync=True) as part, tarfile.open(part, "w") as tar:
        for files, meta in found:
            text = json.dumps(meta, ensure_ascii=False).encode()
            contents = {k: npy(v) for k, v in files.items() if k != "key"} | {"json": text}
            for kind, data in contents.items():
                info = tarfile.TarInfo(f"{files['key']}.{kind}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            count += 1
    if skipped[BROKEN] and "://" in path:  # else it would be taken for finished
        target.unlink()
        count = 0
    return count, skipped


def is_done(shard: str, target: Path) -> bool:
    """Whether a shard's features are there, and are not of an older shard of its name."""
    if not target.exists():
        return False
    here = Path(shard)  # or a URL, of which no time is known
    return not here.exists() or here.stat().st_mtime <= target.stat().st_mtime


def check_settings(out: Path, options: Options) -> None:
    """Writes a folder's settings, or checks them: a folder holds one kind of features.

    Raises:
        InputError: the folder holds tars of other settings.
    """
    path = out / SETTINGS
    settings = {k: v for k, v in asdict(options).items()}
    if options.codec is None:
        del settings["codec"]
    audio = options.audio
    settings |= {"sample_rate": audio.sample_rate, "hop_length": audio.hop_length}
    if path.exists():
        try:
            old = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            old = None
        if old != settings:
            raise InputError(f"{out} was encoded with {old}, not {settings}; choose another --out")
        return
    if any(out.glob("*.tar")):
        raise InputError(f"{out} holds tars that are not from here; choose another --out")
    write_json(path, settings, indent=2)


def extract_features(
    patterns: list[str], out: Path, options: Options, workers: int = 1
) -> dict[str, Any]:
    """Encodes all shards that are not yet there, or were made anew since.

    Returns:
        Counts of shards, of clips written, and of those left out by reason.

    Raises:
        InputError: no shard is found, two have one name, or --out is not fit for them.
        DataError: nothing in them can be used, or a process died.
    """
    shards = find_shards(patterns)
    names = Counter(shard_name(s) for s in shards)
    if twice := [name for name, n in names.items() if n > 1]:
        raise InputError(
            f"several shards are called {twice[0]}; encode them to folders of their own"
        )
    if (options.encoder == "dacvae") != (options.codec is not None):
        raise InputError(
            "--encoder dacvae needs its weights, and no other does: --codec weights.pth of"
            " facebook/dacvae-watermarked, or a release folder with a codec"
        )
    if options.encoder not in ("mel", "dacvae"):
        find_encoder(options.encoder)
    out.mkdir(parents=True, exist_ok=True)
    if same := [s for s in shards if Path(s).parent.resolve() == out.resolve()]:
        raise InputError(f"--out is the folder of {same[0]}; choose another")
    check_settings(out, options)
    todo = [s for s in shards if not is_done(s, out / shard_name(s))]
    skipped: Counter = Counter()
    clips_written = 0
    work = partial(extract_shard, out=out, options=options)
    # a process that is started shares nothing with this one: encoders may use a GPU in each
    results = in_parallel(work, todo, min(workers, len(todo)))
    bar = tqdm(results, total=len(shards), initial=len(shards) - len(todo), unit="shard")
    for count, bad in bar:
        clips_written, skipped = clips_written + count, skipped + bad
        bar.set_postfix(clips=clips_written, left_out=skipped.total())
    if todo and not clips_written:
        for shard in todo:  # else a later run would take the empty tars for finished work
            (out / shard_name(shard)).unlink(missing_ok=True)
        reasons = ", ".join(f"{n} {why}" for why, n in skipped.most_common()) or "no clips"
        raise DataError(f"nothing in {len(todo)} shards can be used: {reasons}")
    return {
        "shards": len(todo),
        "already_there": len(shards) - len(todo),
        "clips": clips_written,
        "skipped": dict(skipped.most_common()),
        "out": str(out),
    }


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech prepare features", __doc__)
    p.add_argument("shards", nargs="+", metavar="SHARDS", help="tars: paths, globs or URLs")
    p.add_argument("--out", type=Path, required=True, help="folder of the new tars")
    p.add_argument("--encoder", default="mel", help="mel (default), dacvae, or MODULE:FUNCTION")
    p.add_argument("--codec", help="of dacvae: its weights.pth, or a release folder")
    p.add_argument("--references", action="store_true", help="add {key}.ref.npy and ref_text")
    p.add_argument("--max-seconds", type=float, default=60.0, help="leave out longer clips (60)")
    p.add_argument("--workers", type=int, default=1, help="processes, each with a shard (1)")
    return p


@command(interrupted="stopped; the same command goes on")
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.workers < 1:
        raise InputError(f"--workers is {args.workers}; choose at least 1")
    options = Options(args.encoder, args.references, args.max_seconds, args.codec)
    with alone(args.out, "--out", say):
        counts = extract_features(args.shards, args.out, options, args.workers)
    for reason, count in counts["skipped"].items():
        print(f"left out {count}: {reason}", file=sys.stderr)
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
