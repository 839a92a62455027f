"""Times sampling with nanospeech 0.0.6, in an environment of its own; speech_cli.py starts it.

Runs with that environment's packages and needs nothing of this project beside the two files that it
imports. It times that release's `Nanospeech.sample` with the settings of its command line:
RK4 over 8 points of time, guidance 2, sway -1, float32. torchaudio and vocos are replaced by empty
modules, as in upstream.py: the prompt is a mel already, and no wave is made.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

try:
    from .serve import FRAME_RATE, example, resident, serve
    from .upstream import stub_audio
except ImportError:  # run as a file by another release's interpreter
    from serve import FRAME_RATE, example, resident, serve
    from upstream import stub_audio

RELEASE = "nanospeech==0.0.6"
NEEDS = ("einops", "einx", "huggingface_hub", "safetensors", "tqdm")  # PyTorch is this one's
SETTINGS = {"steps": 8, "ode_method": "rk4", "cfg_strength": 2.0, "sway_sampling_coef": -1.0}
SHAPES = ("dim", "depth", "heads", "dim_head", "ff_mult", "text_num_embeds", "text_dim")


class Sampling:
    """The release's speech model with the weights of a release folder."""

    def __init__(self, cell: dict[str, Any]):
        import torch
        from safetensors.torch import load_file

        stub_audio()
        from nanospeech.nanospeech_torch import DiT, Nanospeech

        if cell["threads"]:
            torch.set_num_threads(cell["threads"])
        folder = Path(cell["model"])
        sizes = json.loads((folder / "config.json").read_text(encoding="utf-8"))["dit"]
        layers = {"conv_layers": sizes["conv_layers"]}
        transformer: Any = DiT(**{k: sizes[k] for k in SHAPES}, **layers)  # type: ignore[arg-type]
        self.model: Any = Nanospeech(transformer=transformer)  # type: ignore[call-arg]
        weights = load_file(folder / "model.safetensors")
        wrong = self.model.load_state_dict(weights, strict=False)
        if lost := [n for n in (*wrong.missing_keys, *wrong.unexpected_keys) if "mel" not in n]:
            raise ValueError(f"weights do not fit nanospeech 0.0.6: {lost[:3]}")
        # its command line never uses a GPU, but it is to be compared on the same device as ours
        self.device = cell["device"] or ("cuda" if torch.cuda.is_available() else "cpu")
        self.model.to(self.device).eval()
        given = example(cell["seconds"], cell["prompt_seconds"], sizes["text_num_embeds"], 100)
        self.frames = given["frames"]
        self.cond, self.text = (
            torch.from_numpy(given[k]).to(self.device) for k in ("cond", "text")
        )
        self.settings = {**SETTINGS, **cell["options"]}

    def about(self) -> dict[str, Any]:
        import torch

        return {
            "backend": "torch",
            "device": self.device,
            "threads": torch.get_num_threads(),
            "version": importlib.metadata.version("nanospeech"),
            "torch": torch.__version__,
            "settings": self.settings,
        }

    def measure(self) -> dict[str, float]:
        begin, busy = time.perf_counter(), time.process_time()
        out, _ = self.model.sample(self.cond, self.text, self.frames, seed=0, **self.settings)
        out.sum().item()
        seconds = time.perf_counter() - begin
        return {
            "seconds": seconds,
            "speech_seconds": seconds,
            "cpu_seconds": time.process_time() - busy,
            "audio_seconds": self.frames / FRAME_RATE,
        }

    def memory(self) -> dict[str, int]:
        import torch

        held = resident()
        on_gpu = self.device.startswith("cuda")
        peak = torch.cuda.max_memory_allocated() if on_gpu else held
        return {"peak_memory": peak, "resident": held}


def install(folder: Path) -> str:
    """Makes an environment with the release in a folder, and returns its interpreter.

    It borrows this environment's PyTorch: both then run the same build, and little is fetched.

    Raises:
        subprocess.CalledProcessError: pip failed; its output has been shown.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, stdout=sys.stderr)
    python = folder / "bin" / "python"
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "PyTorch is not installed; run: pip install 'nanospeech-tts[torch]'"
        )
    ours = {sysconfig.get_path("purelib"), str(Path(spec.origin).parent.parent)}
    own = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    # a path of a .pth file is searched last: the release comes before ours
    (own / "borrowed.pth").write_text("\n".join(sorted(ours)) + "\n", encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for packages in (NEEDS, ("--no-deps", "--ignore-installed", RELEASE)):
        subprocess.run([*pip, *packages], check=True, stdout=sys.stderr, env=environment)
    return str(python)


if __name__ == "__main__":
    # this file's folder must not hide the other release's packages
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).parent]
    sys.exit(serve(Sampling))
