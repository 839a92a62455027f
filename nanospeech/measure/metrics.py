"""Metrics of speech: transcripts, speaker similarity, perceptual quality.

A library for evaluate and others, not a command. Each metric's package is imported when the metric
is first used. Knows neither texts nor speech models. Waves are float32 (n,) at 24 kHz.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.errors import BackendError, InputError, require

RATE = 16_000  # samples a second that the metrics work at
MIN_SECONDS = 1.0  # seconds; shorter recordings have no reliable speaker embedding
RESEMBLYZER = "pip install librosa webrtcvad-wheels && pip install --no-deps resemblyzer"
# what each measure imports, and the command that brings it
PACKAGES = {
    "whisper": (("faster_whisper", "whisper_normalizer"), "pip install 'nanospeech-tts[eval]'"),
    "normalizer": (("whisper_normalizer",), "pip install whisper-normalizer"),
    "resemblyzer": (("resemblyzer", "webrtcvad", "librosa"), RESEMBLYZER),
    "transformers": (("transformers", "torch"), "pip install transformers torch"),
    "dnsmos": (
        ("speechmos", "onnxruntime", "librosa", "requests"),
        "pip install 'nanospeech-tts[eval]'",
    ),
    "pesq": (("pesq",), "pip install pesq  (it is compiled: a C compiler is needed)"),
    "pictures": (("matplotlib",), "pip install 'nanospeech-tts[eval]'"),
}
CACHE = "NUMBA_CACHE_DIR"  # an environment variable
Embed = Callable[[np.ndarray], np.ndarray]


def check(measure: str) -> None:
    """Looks whether a measure's packages are there, without importing them.

    Args:
        measure: a name of PACKAGES.

    Raises:
        BackendError: one is not; the message names it and the pip command.
    """
    modules, command = PACKAGES[measure]
    if missing := [m for m in modules if importlib.util.find_spec(m) is None]:
        verb = "is" if len(missing) == 1 else "are"
        raise BackendError(f"{', '.join(missing)} {verb} not installed; run: {command}")
    if "librosa" in modules:
        import platformdirs

        library = Path(str(importlib.util.find_spec("librosa").origin))  # type: ignore
        keep_compiled(library.parent, platformdirs.user_cache_path("numba"))


def keep_compiled(library: Path, cache: Path) -> None:
    """Gives numba a folder for what it compiles of librosa, where it would find none.

    librosa cannot be imported where numba can write neither beside its files nor into the user's
    cache, as of a user without a home in a container. Workers inherit the folder.

    Args:
        library: the folder of librosa.
        cache: that of the user for numba.
    """
    if CACHE in os.environ or os.access(library, os.W_OK):
        return
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            return
    except OSError:
        os.environ[CACHE] = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, os.environ[CACHE], ignore_errors=True)


def load_whisper(
    name: str = "base", threads: int = 1, extra: str = "eval", download: bool = True
) -> Any:
    """A faster-whisper model on the CPU in int8: a folder, or a size that it downloads.

    Args:
        name: of the folder or the size.
        threads: that it takes.
        extra: of nanospeech, to be named where faster-whisper is not installed.
        download: whether it may; without, it has to be on this machine.

    Raises:
        BackendError: faster-whisper is not installed, or has not this size and cannot download it.
        InputError: there is no such model.
    """
    faster_whisper = require("faster_whisper", extra)
    try:
        return faster_whisper.WhisperModel(
            name,
            device="cpu",
            compute_type="int8",
            cpu_threads=threads,
            local_files_only=not download,
        )
    except (ValueError, RuntimeError, OSError) as e:
        reason = (str(e).strip() or type(e).__name__).splitlines()[0].rstrip(".")
        cannot = f"cannot load Whisper {name!r}: {reason}"
        if name in faster_whisper.available_models():
            do = "it is downloaded once: connect to the network, or name a folder that has it"
            raise BackendError(f"{cannot}; {do}") from e
        raise InputError(f"{cannot}; name a size or a folder") from e


def check_language(model: Any, language: str) -> None:
    """
    Raises:
        InputError: the recogniser does not know the language.
    """
    known = getattr(model, "supported_languages", [language])
    if language not in known:
        raise InputError(f"Whisper has no language {language!r}; choose a code such as en, de, zh")


def transcribe(
    model: Any,
    wave: np.ndarray,
    sample_rate: int = audio.SAMPLE_RATE,
    language: str = "en",
    beam: int = 5,
) -> str:
    """Whisper's transcript of a wave; the same every time.

    Args:
        model: of load_whisper.
        wave: float32 (n,).
        sample_rate: of the wave, in Hz.
        language: code of the spoken language; it is not detected.
        beam: beam width.

    Raises:
        InputError: the recogniser does not know the language.
    """
    check_language(model, language)
    # Whisper falls back to random sampling where beam search fails: seed it
    require("ctranslate2", "eval").set_random_seed(0)
    segments, _ = model.transcribe(
        audio.resample(wave, sample_rate, RATE),
        language=language,
        beam_size=beam,
        condition_on_previous_text=False,
    )
    return " ".join(segment.text.strip() for segment in segments)


def load_encoder(name: str = "resemblyzer", device: str = "cpu") -> Embed:
    """A speaker encoder: maps a wave, float32 (n,) at 24 kHz, to an embedding of length 1.

    Args:
        name: "resemblyzer" (generalised end-to-end loss, arXiv 1710.10467; it carries its
            weights), or a folder or Hub repository of an x-vector model of transformers, for
            example microsoft/wavlm-base-plus-sv (WavLM, arXiv 2110.13900).
        device: for example "cpu" or "cuda".

    Raises:
        BackendError: its package is not installed.
        InputError: there is no such model. What is returned raises it for a silent wave.
    """
    return _resemblyzer(device) if name == "resemblyzer" else _xvector(name, device)


def speaker_package(name: str) -> str:
    """The entry of PACKAGES that a speaker encoder needs."""
    return "resemblyzer" if name == "resemblyzer" else "transformers"


def heard_at(wave: np.ndarray) -> np.ndarray:
    """A wave at RATE; silence, which has no speaker, is an InputError."""
    if audio.is_silent(wave):
        raise InputError("a silent recording sounds like nobody; there is nothing to compare")
    return audio.resample(wave, audio.SAMPLE_RATE, RATE)


def _resemblyzer(device: str) -> Embed:
    check("resemblyzer")
    try:
        import resemblyzer
    except ImportError as e:
        raise BackendError(f"Resemblyzer cannot be imported ({e}); run: {RESEMBLYZER}") from e
    encoder = resemblyzer.VoiceEncoder(device, verbose=False)

    def embed(wave: np.ndarray) -> np.ndarray:
        wave = heard_at(wave)
        voiced = resemblyzer.preprocess_wav(wave)
        return np.asarray(encoder.embed_utterance(voiced if len(voiced) else wave), np.float32)

    return embed


def _xvector(name: str, device: str) -> Embed:
    check("transformers")
    import transformers

    torch = require("torch", "torch")

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        features = transformers.AutoFeatureExtractor.from_pretrained(name)
        model = transformers.AutoModelForAudioXVector.from_pretrained(name)
    except (OSError, ValueError) as e:
        line = str(e).strip().splitlines()[0]
        raise InputError(f"cannot load the speaker model {name!r}: {line}") from e
    model = model.eval().to(device)

    @torch.no_grad()
    def embed(wave: np.ndarray) -> np.ndarray:
        wave = heard_at(wave)
        inputs = features(wave, sampling_rate=RATE, return_tensors="pt").to(device)
        vector = model(**inputs).embeddings[0].float().cpu().numpy()
        return vector / np.linalg.norm(vector)

    return embed


def dnsmos(wave: np.ndarray) -> dict[str, float]:
    """DNSMOS (arXiv 2110.01763): listeners' quality scores, 1 to 5, as a network predicts them.

    Args:
        wave: float32 (n,), 24 kHz. It is repeated up to 9 seconds, as the measure's authors do.

    Returns:
        "ovrl" overall, "sig" the speech, "bak" the background, "p808" overall by another model.

    Raises:
        BackendError: speechmos is not installed.
        InputError: the wave is empty.
    """
    if not len(wave):
        raise InputError("DNSMOS has nothing to listen to: the wave is empty")
    found = _dnsmos()(np.clip(audio.resample(wave, audio.SAMPLE_RATE, RATE), -1, 1), RATE, False)
    return {name: float(found[f"{name}_mos"]) for name in ("ovrl", "sig", "bak", "p808")}


@lru_cache(maxsize=1)
def _dnsmos() -> Any:
    check("dnsmos")
    module = importlib.import_module("speechmos.dnsmos")
    ort = require("onnxruntime", "eval")
    folder = Path(str(module.__file__)).parent / "dnsmos_models"
    paths = str(folder / "sig_bak_ovr.onnx"), str(folder / "model_v8.onnx")
    scorer = module.DNSMOS(*paths)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # it would take every core
    scorer.onnx_sess, scorer.p808_onnx_sess = (
        ort.InferenceSession(p, options, providers=["CPUExecutionProvider"]) for p in paths
    )
    return scorer


def pesq_wb(reference: np.ndarray, degraded: np.ndarray) -> float:
    """Wide band PESQ (ITU-T P.862.2), about 1 to 4.64: similarity of a copy to its original.

    Args:
        reference: the original, float32 (n,), 24 kHz.
        degraded: the copy, in time with it; the longer one is cut.

    Raises:
        BackendError: pesq is not installed.
        InputError: it finds no speech, or less than a quarter of a second.
    """
    check("pesq")
    import pesq

    n = min(len(reference), len(degraded))
    original, copy = (audio.resample(w[:n], audio.SAMPLE_RATE, RATE) for w in (reference, degraded))
    if audio.is_silent(original) or audio.is_silent(copy):
        raise InputError("PESQ cannot compare these waves: one is silent")
    try:
        return float(pesq.pesq(RATE, original, copy, "wb"))
    except (pesq.PesqError, ValueError) as e:
        reason = e.args[0].decode() if e.args and isinstance(e.args[0], bytes) else e
        raise InputError(f"PESQ cannot compare these waves: {reason}") from e


def to_mean(embeddings: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Cosine of each embedding with the target's mean one.

    Args:
        embeddings: (n, E), of length 1.
        target: (m, E), of length 1.

    Returns:
        (n,), in [-1, 1].
    """
    mean = target.mean(0)
    return embeddings @ (mean / np.linalg.norm(mean))


def to_others(target: np.ndarray) -> np.ndarray:
    """Cosine of each embedding with the mean of all but itself: (m,)."""
    rest = target.sum(0) - target
    return np.sum(target * rest, 1) / np.linalg.norm(rest, axis=1)
