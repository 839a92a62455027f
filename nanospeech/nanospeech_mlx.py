"""Door: the MLX model under the import path of the published guide. Its home is nanospeech_mlx/."""

from .errors import require

require("mlx", "mlx")

from nanospeech_mlx.dit import DiT  # noqa: E402
from nanospeech_mlx.duration import DurationHead as DurationPredictor  # noqa: E402
from nanospeech_mlx.duration import DurationTransformer  # noqa: E402
from nanospeech_mlx.engine import MlxEngine  # noqa: E402
from nanospeech_mlx.vocoder import Vocos  # noqa: E402

from .config import AudioConfig  # noqa: E402

SAMPLES_PER_SECOND = AudioConfig().frame_rate  # mel frames: 93.75

__all__ = [
    "SAMPLES_PER_SECOND",
    "DiT",
    "DurationPredictor",
    "DurationTransformer",
    "MlxEngine",
    "Vocos",
]
