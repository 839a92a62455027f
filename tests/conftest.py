"""Fixtures: the golden files, tiny release folders and engines for both backends."""

from __future__ import annotations

import functools
import gc
import importlib.util
import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

# several processes of tests share the cores, and one that spins for another's threads waits long:
# read when NumPy, ONNX Runtime or torch is loaded, by tests' own processes as well
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import soundfile

GOLDEN = Path(__file__).parent / "golden"
BACKENDS = ("torch", "mlx", "onnx")
LIBRARIES = {"torch": "torch", "mlx": "mlx.core", "onnx": "onnxruntime"}
TONE_TEXT = "hello there, general."
# one head of 64, so that a network of this size is still one of ours
TINY = {
    "dim": 64,
    "depth": 2,
    "heads": 1,
    "dim_head": 64,
    "text_dim": 32,
    "conv_layers": 2,
    "text_num_embeds": 33,
    "rope_heads": 1,
    "text_masking": True,
    "adaln_zero": False,
}

# tests in the background of a shell would hand on to their processes that Ctrl-C is ignored, under
# nohup that a terminal that closes is, too
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if getattr(signal, "SIGHUP", None) and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# what is imported and collected is no garbage: none is looked for until pytest_collection_finish
gc.disable()

if importlib.util.find_spec("torch"):
    import torch
    from torch.utils.data import _utils

    torch.set_num_threads(1)
    # seconds that a loader waits for a worker which garbage collection has left without its queue
    _utils.MP_STATUS_CHECK_INTERVAL = 1.0

# the files that take longest, longest first: with few processes none is left for the end
LONGEST = (
    "train/test_parallel.py",
    "train/test_speed.py",
    "train/test_signals.py",
    "test_package.py",
    "engine/test_compiled.py",
    "train/test_resume.py",
    "train/test_launch.py",
    "release/test_default_voice.py",
    "scripts/test_bench.py",
    "train/test_trainer.py",
    "scripts/test_recipe.py",
    "speech/test_batch.py",
    "release/test_voice_weights.py",
    "release/test_sharded.py",
    "commands/test_guide.py",
    "scripts/test_bench_train.py",
    "train/test_vocoder_command.py",
    "train/test_distill_voices.py",
    "train/test_vocoder_gan.py",
    "train/test_optimizers.py",
)
# what starts processes from a server that has loaded torch, see forked.py: all in one process of
# tests, so that there is one server
FORKED = {
    "evaluate/test_steps.py",
    "finetune/test_processes.py",
    *(f"scripts/test_{name}.py" for name in ("bench", "crash_test", "recipe", "vocoder_gpu")),
    *(
        f"train/test_{name}.py"
        for name in ("checkpoints", "optimizers", "parallel", "resume", "signals")
    ),
    *(f"train/test_{name}.py" for name in ("tensor_groups", "trainer", "vocoder_gan")),
}


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Each process begins with other files: it finds compiled what others have imported."""
    report = yield
    if isinstance(collector, pytest.Directory) and report.result:
        number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        first = len(report.result) * (number % 3) // 3
        report.result = [*report.result[first:], *report.result[:first]]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then by name: the same order in every process."""
    place = {str(Path(__file__).parent / name): n for n, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(str(item.path), len(place)), item.path))


def pytest_collection_finish() -> None:
    """What has been imported by now stays; nobody needs to search it for garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `-n` whole files go to the processes, so that what a file shares is made once."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "forked" if file.removeprefix("tests/") in FORKED else file

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def homes(tmp_path_factory) -> Iterator[Path]:
    """Names of folders that are not there, one for each test."""
    # not of mktemp, which reads the names of all folders before each that it makes
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(n) for n in itertools.count())


@pytest.fixture(autouse=True)
def user_data(homes, monkeypatch) -> Path:
    """The user's data folder in a test: one of its own, where nothing is yet."""
    folder = next(homes) / "nanospeech"
    monkeypatch.setenv("NANOSPEECH_HOME", str(folder))
    return folder


def needs(backend: str) -> None:
    """Skips a test where a backend is not installed."""
    pytest.importorskip(LIBRARIES[backend], reason=f"no {backend} here")


@pytest.fixture(scope="session")
def golden() -> Path:
    """Tiny checkpoints of the published layouts, with inputs and outputs of the originals."""
    return GOLDEN


@pytest.fixture(scope="session")
def arrays() -> dict[str, np.ndarray]:
    """The arrays of golden/nanospeech.npz."""
    with np.load(GOLDEN / "nanospeech.npz") as z:
        return dict(z)


@pytest.fixture(params=BACKENDS)
def backend(request) -> str:
    """Each backend in turn."""
    needs(request.param)
    return request.param


def tone(seconds: float = 1.2, pitch: float = 140.0) -> np.ndarray:
    """A voice-like wave: harmonics with formants, syllables, a little breath; float32, 24 kHz."""
    return _tone(seconds, pitch).copy()


@functools.lru_cache(64)
def _tone(seconds: float, pitch: float) -> np.ndarray:
    t = np.arange(int(seconds * 24_000)) / 24_000
    phase = 2 * np.pi * pitch * (t + 0.003 * np.sin(2 * np.pi * 5 * t))
    wave = np.zeros_like(t)
    for k in range(1, 30):
        formants = sum(np.exp(-(((k * pitch - f) / 200) ** 2)) for f in (600, 1200, 2500))
        wave += (0.05 + formants) * np.sin(k * phase) / 3
    wave *= 0.55 - 0.45 * np.cos(2 * np.pi * 3 * t)
    breath = np.random.default_rng(0).standard_normal(len(t))
    return (0.2 * wave + 0.002 * breath).astype(np.float32)


@pytest.fixture(scope="session")
def vocoder_file(tmp_path_factory) -> Path:
    """golden's Vocos as vocoder.safetensors."""
    torch = pytest.importorskip("torch")
    from safetensors.numpy import save_file

    from nanospeech.release.tensors import IGNORED

    state = torch.load(GOLDEN / "vocos_pytorch_model.bin", weights_only=True)
    path = tmp_path_factory.mktemp("vocoder") / "vocoder.safetensors"
    save_file({k: v.numpy() for k, v in state.items() if not k.startswith(IGNORED)}, path)
    return path


def add_voice(folder: Path) -> None:
    """Puts the voice "tone" into a release folder."""
    (folder / "voices").mkdir()
    soundfile.write(folder / "voices" / "tone.wav", tone(), 24_000)
    (folder / "voices" / "tone.txt").write_text(TONE_TEXT, encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_release(tmp_path_factory, vocoder_file) -> Path:
    """A whole release folder with golden's weights. Read it, do not change it."""
    import dataclasses

    from nanospeech.release.folder import load_config

    folder = tmp_path_factory.mktemp("release") / "tiny"
    folder.mkdir()
    for name in ("model.safetensors", "duration.safetensors", "vocab.txt"):
        shutil.copy(GOLDEN / name, folder)
    shutil.copy(vocoder_file, folder)
    add_voice(folder)
    config = dataclasses.replace(load_config(folder), name="tiny", default_voice="tone")
    config.save(folder / "config.json")
    return folder


def random_release(folder: Path, vocoder_file: Path, **fields) -> Path:
    """A release folder with seeded random weights.

    Args:
        fields: of DiTConfig, over those of TINY.
    """
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    from nanospeech.config import AudioConfig, DiTConfig, ModelConfig
    from nanospeech.release.shapes import vocoder_config_from_shapes
    from nanospeech.release.tensors import tensor_shapes
    from nanospeech_torch.dit import DiT

    config = ModelConfig(
        name=folder.name,
        audio=AudioConfig(mel_mean=-4.0, mel_std=2.5),
        dit=DiTConfig(**{**TINY, **fields}),
        vocoder=vocoder_config_from_shapes(tensor_shapes(vocoder_file)),
        default_voice="tone",
    )
    folder.mkdir(parents=True)
    config.save(folder / "config.json")
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    # off their starting values: zeros and ones would hide a mistake
    state = {
        f"transformer.{name}": t + 0.05 * torch.randn(t.shape, generator=generator)
        for name, t in DiT(config.dit).state_dict().items()
    }
    save_file(state, folder / "model.safetensors")
    shutil.copy(GOLDEN / "vocab.txt", folder)
    shutil.copy(vocoder_file, folder / "vocoder.safetensors")
    add_voice(folder)
    return folder


@pytest.fixture
def uncollected():
    """Without the collector of cycles, which comes when it comes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def make_release(tmp_path_factory, vocoder_file):
    """make_release(**fields of DiTConfig) -> a random release folder, made once a session."""
    made: dict[tuple, Path] = {}

    def make(**fields) -> Path:
        key = tuple(sorted(fields.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp("release") / "random"
            made[key] = random_release(folder, vocoder_file, **fields)
        return made[key]

    return make


@pytest.fixture(scope="session")
def tiny_aligned(make_release) -> Path:
    """A whole release folder of an aligned model with random weights. Read it, do not change it."""
    return make_release(text_upsampling="aligned", patch_size=2, aligner_dim=24)


@pytest.fixture(scope="session")
def voices_made(tiny_aligned, tmp_path_factory) -> Path:
    """What two_voices gives a copy of."""
    from tests.two_voices import two_voices_and_one

    made = tmp_path_factory.mktemp("voices")
    two_voices_and_one(tiny_aligned, made / "two", made / "alone", slower=2.0)
    return made


@pytest.fixture
def two_voices(voices_made, tmp_path) -> tuple[Path, Path]:
    """A folder with the voices "tone" and, with weights, "other"; and a folder of the latter's."""
    for name in ("two", "alone"):
        shutil.copytree(voices_made / name, tmp_path / name)
    return tmp_path / "two", tmp_path / "alone"


@pytest.fixture(scope="session")
def engine_of():
    """engine_of(folder, backend) -> Engine, loaded once a session."""
    from nanospeech.load import load_engine

    loaded: dict[tuple, object] = {}

    def load(folder: Path, backend: str):
        needs(backend)
        key = (folder, backend)
        if key not in loaded:
            loaded[key] = load_engine(folder, backend, "cpu", "float32")
        return loaded[key]

    return load
