"""Folder: the release folder on disk or on the Hub. Reads and checks it; runs no model.

A folder holds config.json, model.safetensors, vocab.txt and perhaps duration.safetensors,
vocoder.safetensors, voices/, README.md and the folder of an imitator. Big weights are in several
files, see sharded.py. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nanospeech.architectures import QuantizationConfig
from nanospeech.config import AudioConfig, ModelConfig, VocoderConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.text.pieces import PieceTokenizer
from nanospeech.text.tokenizer import BYTES, Tokenizer

from . import quantization as quantized
from . import sharded, voice_weights
from .shapes import dit_config_from_shapes, duration_config_from_shapes, vocoder_config_from_shapes
from .tensors import read_tensors, tensor_shapes

CONFIG, MODEL, VOCAB = "config.json", "model.safetensors", "vocab.txt"
STUDENT = "student.safetensors"  # see architectures.StudentConfig
READING = "transformer.text_embed.", "transformer.aligner."  # a student has its teacher's
IMITATOR = "imitator"  # folder of a model that speaks after recordings
DURATION, VOCODER = "duration.safetensors", "vocoder.safetensors"
CODEC, TEXT_ENCODER = "codec.safetensors", "text_encoder"  # of models of latents; the last a folder
PIECES = "tokenizer.json"
SHARDED = ("*-of-*.safetensors", "*.safetensors.index.json")
RELEASE_FILES = (
    CONFIG,
    MODEL,
    STUDENT,
    DURATION,
    VOCODER,
    CODEC,
    VOCAB,
    PIECES,
    *SHARDED,
    "voices/*",
)
RELEASE_FILES += tuple(
    f"{IMITATOR}/{n}" for n in (CONFIG, MODEL, STUDENT, VOCODER, VOCAB, PIECES, "README.md")
)
RELEASE_FILES += (f"{TEXT_ENCODER}/*.json", f"{TEXT_ENCODER}/*.safetensors", "README.md")
MAX_TEXT_BYTES = 4_000_000  # of config.json and of vocab.txt
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# with a branch, tag or commit
HUB_MODEL = re.compile(rf"({HUB_NAME.pattern})(?:@(\w[\w.-]*(?:/\w[\w.-]*)*))?")
DEFAULT = Path(__file__).parents[1] / "default"
MAKE = "make a checkpoint, of another project too, a release folder with: nanospeech convert"


@dataclass(frozen=True)
class Release:
    """An opened release folder. Weights are read from it later, by an engine."""

    folder: Path
    config: ModelConfig
    tokenizer: Tokenizer
    packs: bool = False  # weights are packed as they are read, as the config says
    held: QuantizationConfig | None = None  # then: how the folder has them
    voice: Path | None = None  # voices/NAME.safetensors of the voice that speaks, if it has one
    speech: str = MODEL  # the file of the network that speaks: MODEL, or STUDENT
    beside: Release | None = None  # of an imitator: the release that it is in, with all other parts
    own_vocoder: bool = True  # of an imitator: whether it speaks by its vocoder, if it has one

    def of_network(self, network: str) -> Release:
        """The same, of which one of its networks speaks.

        Args:
            network: "model", "student", "imitator", "imitator/student" or "imitator/student/named",
                the imitator's student by this release's vocoder, as in the voices that it names.
        """
        if network == "model":
            return self
        if network == "student":
            return self.student()
        imitator = self.imitator()
        if network == "imitator":
            return imitator
        student = imitator.student()
        return student.with_release_vocoder() if network == "imitator/student/named" else student

    def student(self) -> Release:
        """The same, of which the student speaks; MODEL is then its name."""
        return dataclasses.replace(self, config=self.config.as_student(), speech=STUDENT)

    def with_release_vocoder(self) -> Release:
        """The same by the vocoder of the release that this imitator is in.

        That one was trained on mels of the release's voices, and the imitator's on those of
        recordings.
        """
        assert self.beside is not None
        config = dataclasses.replace(self.config, vocoder=self.beside.config.vocoder)
        return dataclasses.replace(self, config=config, own_vocoder=False)

    def imitator(self) -> Release:
        """The release of the imitator, with this one's vocoder if it has none; not packed here.

        It is opened once: who speaks is asked for each voice and each change of options. A voice's
        weights are then changes of the imitator's.

        Raises:
            CheckpointError: there is no such folder, or its model is not of this one's mels.
        """
        return self._imitator

    @cached_property
    def _imitator(self) -> Release:
        folder = self.folder / IMITATOR
        if not (self.config.imitator and folder.is_dir()):  # else a Hub's name to open_release
            raise CheckpointError(
                f"{folder} is not there; take the whole release, or put a model that imitates there"
                " with: nanospeech convert MODEL --imitator RELEASE --output FOLDER"
            )
        own = open_release(folder)
        try:
            config = self.config.as_imitator(own.config)
        except InputError as e:
            raise CheckpointError(str(e)) from e
        if sharded.there(folder / VOCODER):
            config = dataclasses.replace(config, vocoder=own.config.vocoder)
        return dataclasses.replace(own, config=config, voice=self.voice, beside=self)

    def itself(self) -> Release:
        """The same without student and imitator: the model itself speaks, whatever is asked."""
        config = dataclasses.replace(self.config, student=None, imitator=False)
        return dataclasses.replace(self, config=config)

    def shapes(self, file: str) -> dict[str, tuple[int, ...]]:
        """Shapes by name of a file's tensors, packed ones as they are unpacked."""
        q, path = self.config.quantization, self.folder / file
        shapes = tensor_shapes(path)
        return quantized.float_shapes(shapes, getattr(q, path.stem, {})) if q else shapes

    def path(self, name: str) -> Path:
        """Path of a file: in the folder, or for a missing vocoder in the package."""
        if name == MODEL:
            return self.folder / self.speech
        if self.beside is not None and not self.owns(name):
            return self.beside.path(name)
        return vocoder_path(self.folder) if name == VOCODER else self.folder / name

    def owns(self, name: str) -> bool:
        """Whether an imitator has the part itself: its network, and maybe a vocoder for it."""
        vocoder = name == VOCODER and self.own_vocoder
        return name == MODEL or (vocoder and sharded.there(self.folder / VOCODER))

    def files(self, name: str) -> list[Path]:
        """The files that hold it: itself, or its shards."""
        return list(sharded.files_of(self.path(name)))

    def has(self, name: str) -> bool:
        """Whether there is such a file, and the network that speaks is for it."""
        parts = {VOCODER: self.config.vocoder, DURATION: self.config.duration}
        return parts.get(name, True) is not None and sharded.there(self.path(name))

    def quantize(self, bits: int) -> Release:
        """The same, with the speech model's weights rounded to few bits as they are read.

        Raises:
            InputError: the bits are not 4 or 8, or the folder has its weights in fewer.
        """
        held = self.config.quantization
        quantized.check_fewer(held, bits, self.folder)
        files = {"model": MODEL} | ({"student": STUDENT} if self.config.student else {})
        layers = quantized.plan({part: self.shapes(file) for part, file in files.items()}, bits)
        if held is not None:
            others = {n: getattr(held, n) for n in ("duration", "vocoder")}
            layers = dataclasses.replace(layers, **others)
        config = dataclasses.replace(self.config, quantization=layers)
        return dataclasses.replace(self, config=config, packs=True, held=held)

    def stored(self, path: Path) -> dict[str, Any]:
        """Tensors of a file as they are stored, or as they are to be packed."""
        q = self.config.quantization
        held = self.held if self.packs else q
        layers = getattr(held, path.stem, {})  # a codec stays floats
        size = held.group_size if held else 0
        tensors = quantized.joined(read_tensors(path, bool(layers)), layers, size, path)
        if not (self.packs and q):
            return tensors
        floats = quantized.unpacked(tensors)
        return quantized.pack_layers(floats, getattr(q, path.stem, {}), q.group_size)

    def weights(self, name: str, packed: bool = False) -> dict[str, Any]:
        """Tensors of a file: NumPy floats by name, shaped as the network's.

        Args:
            name: MODEL, DURATION or VOCODER.
            packed: leave packed weights as they are, PackedWeight; else they are unpacked.

        Raises:
            CheckpointError: unreadable, packed in another way than config.json says, or a voice's
                weights are of another model.
        """
        if self.beside is not None and not self.owns(name):
            return self.beside.weights(name, packed)
        if name == VOCODER:
            self.check_vocoder()
        tensors = self.stored(self.path(name))
        if name == MODEL and self.speech == STUDENT:  # which has not what did not learn
            tensors = self.stored(self.folder / MODEL) | tensors
        if self.voice is None or name != MODEL:
            return tensors if packed else quantized.unpacked(tensors)
        change = read_tensors(self.voice)
        return voice_weights.added(tensors, change, self.voice)

    def check_vocoder(self) -> None:
        """Raises CheckpointError where the shipped vocoder would stand in for one of its own."""
        missing = self.folder != DEFAULT and not sharded.there(self.folder / VOCODER)
        if missing and self.config.vocoder != shipped_vocoder():
            raise CheckpointError(
                f"{self.folder} has no {VOCODER}, which its {CONFIG} describes; fetch the whole"
                ' folder again, or write "vocoder": null there to speak by the one that ships'
            )


def resolve(folder_or_repo: str | Path | None = None) -> Path:
    """Finds a release folder, downloading it if it is a Hub repository.

    Args:
        folder_or_repo: a folder, a Hub name such as "lucasnewman/nanospeech", maybe with a branch,
            tag or commit behind an @, or None or nanospeech/default for what the package ships.

    Raises:
        InputError: neither a folder nor a Hub repository.
        CheckpointError: a folder without a model, or a download that failed.
    """
    if folder_or_repo is None:
        if not sharded.there(DEFAULT / MODEL):
            raise CheckpointError(
                "this copy of nanospeech ships no default voice; name a release folder or a Hub"
                " repository (--model)"
            )
        return DEFAULT
    folder = shipped(os.path.expanduser(folder_or_repo))  # Path's own raises for ~NOBODY
    if folder.is_dir():
        if not sharded.there(folder / MODEL):
            raise CheckpointError(f"{folder} has no {MODEL}; {MAKE}")
        return folder
    name = str(folder_or_repo)
    if folder.exists():
        raise InputError(f"{name} is a file, not a folder that holds {MODEL}; {MAKE}")
    if not (found := HUB_MODEL.fullmatch(name)):
        raise InputError(
            f"model {name!r} not found: it is neither a folder nor a Hub repository (owner/name, or"
            " owner/name@revision)"
        )
    return download(*found.groups())


def shipped(path: str | Path) -> Path:
    """A path as it is; where nothing is there, nanospeech/default, as in a clone, is DEFAULT."""
    path = Path(path)
    if path.parts[:2] != ("nanospeech", "default") or path.exists():
        return path
    return DEFAULT.joinpath(*path.parts[2:])


def download(repo: str, revision: str | None = None) -> Path:
    """Fetches the release files of a Hub repository, or finds them in the Hub's cache.

    Args:
        revision: branch, tag or commit; None is the branch main.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    files = list(RELEASE_FILES)
    try:
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=files))
    except RevisionNotFoundError as e:
        raise InputError(
            f"the Hub repository {repo!r} has no revision {revision!r}; name a branch, a tag or a"
            " whole commit"
        ) from e
    except (RepositoryNotFoundError, HFValidationError) as e:
        raise InputError(
            f"model {repo!r} not found: there is no such folder, and no such repository on the"
            " Hugging Face Hub (or it is private: run hf auth login)"
        ) from e
    except Exception as e:  # its HTTP libraries' errors share no base class
        reason = str(e).strip().split("\n")[0]
        raise CheckpointError(
            f"cannot download {repo!r}, and there is no such folder here: {reason}; check the"
            " network, or fetch the files elsewhere and name their folder"
        ) from e
    if not sharded.there(folder / MODEL):
        raise CheckpointError(
            f"the Hub repository {repo!r} holds no {MODEL}; fetch its checkpoint with hf download"
            f" {repo} FILE --local-dir FOLDER, and make it a release folder with: nanospeech"
            " convert FOLDER/FILE"
        )
    return folder


def load_config(folder: str | Path) -> ModelConfig:
    """Reads config.json; what it leaves out is read off the tensors' shapes.

    Raises:
        CheckpointError: unreadable, of unknown keys, or contradicting itself.
    """
    folder = Path(folder)
    config = None
    if (folder / CONFIG).exists():
        check_size(folder / CONFIG)
        config = ModelConfig.load(folder / CONFIG)
    if config is None:
        dit = dit_config_from_shapes(tensor_shapes(folder / MODEL), folder / MODEL)
        config = ModelConfig(audio=AudioConfig(n_mels=dit.n_mels), dit=dit)
    if config.duration is None and sharded.there(path := folder / DURATION):
        duration = duration_config_from_shapes(tensor_shapes(path), path)
        config = dataclasses.replace(config, duration=duration)
    path, mel = vocoder_path(folder), AudioConfig()
    usual = all(
        getattr(config.audio, k) == getattr(mel, k)
        for k in ("sample_rate", "n_fft", "hop_length", "n_mels")
    )
    known = config.vocoder is not None or config.codec is not None
    if not known and sharded.there(path) and (usual or path.parent == folder):
        own = path.parent == folder
        vocoder = vocoder_config_from_shapes(tensor_shapes(path)) if own else shipped_vocoder()
        config = dataclasses.replace(config, vocoder=vocoder)
    check_together(config, folder)
    return config


def check_together(config: ModelConfig, folder: Path) -> None:
    """Raises CheckpointError where the parts of a folder are not of one kind of mels."""
    speaks = config.echo.latent_dim if config.echo else config.dit.n_mels
    mels = {"audio": config.audio.n_mels, "speech model": speaks}
    if config.duration:
        mels["duration"] = config.duration.n_mels
    if config.vocoder:
        mels["vocoder"] = config.vocoder.n_mels
    if len(set(mels.values())) > 1:
        raise CheckpointError(f"the parts in {folder} disagree on n_mels: {mels}")
    if config.vocoder and config.vocoder.hop_length != (hop := config.audio.hop_length):
        raise CheckpointError(
            f"the parts in {folder} disagree on hop_length: audio has {hop}, the vocoder"
            f" {config.vocoder.hop_length}; speech would come out at another speed"
        )
    if config.codec:
        audio = config.audio.sample_rate, config.audio.hop_length
        own = config.codec.sample_rate, config.codec.hop_length
        if audio != own:
            raise CheckpointError(
                f"the parts in {folder} disagree on sample_rate and hop_length: audio has"
                f" {audio[0]} and {audio[1]}, the codec {own[0]} and {own[1]}"
            )


def vocoder_path(folder: Path) -> Path:
    """The vocoder of a folder, or the default voice's: 24 kHz models share one mel."""
    own = folder / VOCODER
    return own if sharded.there(own) else DEFAULT / VOCODER


def shipped_vocoder() -> VocoderConfig:
    """What the default voice's vocoder is: its shapes tell not all."""
    stated = DEFAULT / CONFIG
    found = ModelConfig.load(stated).vocoder if stated.is_file() else None
    return found or vocoder_config_from_shapes(tensor_shapes(DEFAULT / VOCODER))


def open_release(folder_or_repo: str | Path | None = None) -> Release:
    """Resolves a release folder and reads all of it but the weights.

    Raises:
        InputError, CheckpointError: as resolve and load_config; or the vocabulary is damaged or
            of another model.
    """
    folder = resolve(folder_or_repo)
    config = load_config(folder)
    path = folder / VOCAB
    if config.tokenizer == "pieces":
        encoder = folder / config.text_encoder.folder if config.text_encoder else folder
        own = folder / PIECES
        pieces = own if own.is_file() else encoder / PIECES
        tags = config.echo.text_tags if config.echo else ()
        return Release(folder, config, PieceTokenizer(pieces, tags))
    if config.tokenizer not in BYTES:
        check_size(path)
    tokenizer = Tokenizer.load(config.tokenizer, path).with_language(config.language)
    # a file that ends with "\n" was counted by the published trainer as one token more
    if config.text_count - len(tokenizer) not in (0, 1):
        raise CheckpointError(
            f"{path} has {len(tokenizer)} tokens, but the model was trained with"
            f" {config.text_count}; take the {VOCAB} that came with it"
        )
    return Release(folder, config, tokenizer)


def check_size(path: Path) -> None:
    """Raises CheckpointError where a text file is missing or absurdly large."""
    if not path.is_file():
        raise CheckpointError(f"{path.parent} has no {path.name}; a release folder needs one")
    if (size := path.stat().st_size) > MAX_TEXT_BYTES:
        raise CheckpointError(f"{path} has {size:,} bytes, more than {MAX_TEXT_BYTES:,}")
