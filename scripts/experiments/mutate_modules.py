"""Modules that mutate.py puts faults into, and the quick tests that are to notice them."""

from __future__ import annotations

SPEECH = [
    f"tests/train/test_{n}.py"
    for n in ("golden_batches", "golden_duration", "gradients", "flow", "references", "means")
]
HEARD = [f"tests/train/test_{n}.py" for n in ("bands", "rooms", "spoiled")]
ORDER = [f"tests/train/test_{n}.py" for n in ("order", "stream", "data")]
PAIRS = [f"tests/train/test_{n}.py" for n in ("golden_pairs", "pairing", "references")]
BATCHES = [*(f"tests/train/test_{n}.py" for n in ("golden_data", "data", "draws")), *PAIRS]
STEPS = [f"tests/train/test_{n}.py" for n in ("optimizers", "golden_steps", "mup")]
STUDENTS = [f"tests/train/test_{n}.py" for n in ("distill", "distill_voices", "profile")]
UNDERSTOOD = [
    f"tests/train/test_{n}.py" for n in ("listener", "understood", "gradients", "profile")
]
VOCODER = [
    f"tests/train/test_{n}.py" for n in ("golden_vocoder", "gradients", "vocoder_gan", "profile")
]
ECHO = [f"tests/train/test_{n}.py" for n in ("echo", "text_reader")]
LATENTS = [f"tests/train/test_{n}.py" for n in ("latents", "echo")]
STREAMS = [*ORDER, *(f"tests/train/test_{n}.py" for n in ("batches", "data_places"))]
SEGMENTS = [f"tests/train/test_{n}.py" for n in ("segments", "golden_vocoder")]
MARKUP = "tests/text/test_markup.py"
WORDS = [f"tests/speech/test_{n}.py" for n in ("words", "marked")]
WAVES = [f"tests/audio/test_{n}.py" for n in ("audio", "refused", "sinks", "films")]
RECORDED = [
    "tests/speech/test_reference.py",
    *(f"tests/audio/test_{n}.py" for n in ("rumble", "noise", "narrow", "loudness", "pitch")),
]
RESTORED = ["tests/audio/test_noise.py", "tests/scripts/test_speech_restorer.py"]
PROMPTS = [
    "tests/audio/test_narrow.py",
    "tests/engine/test_wordless.py",
    *(f"tests/release/test_{n}.py" for n in ("prompt", "prompt_codec", "f5_reference")),
]
LISTEN = [f"tests/publish/test_{n}.py" for n in ("listen", "listen_pages")]
VOICES = [f"tests/{n}.py" for n in ("publish/test_add_voice", "release/test_student")]
NETWORKS = [f"tests/backends/test_{n}.py" for n in ("formulas", "prompt_embedding", "parity")]
GRAPHS = [f"tests/backends/test_{n}.py" for n in ("onnx_networks", "onnx", "parity")]
MLX = [f"tests/backends/test_{n}.py" for n in ("mlx_cpu", "parity", "vocoder")]
TRAIN = "nanospeech_torch/train"
# a module and the quick tests that are to catch its faults
MODULES = {
    "flow": (f"{TRAIN}/objectives/flow.py", SPEECH),
    "duration": (f"{TRAIN}/objectives/duration.py", SPEECH),
    "placing": (f"{TRAIN}/objectives/placing.py", SPEECH),
    "distill": (f"{TRAIN}/objectives/distill.py", STUDENTS),
    "end": (f"{TRAIN}/objectives/distill_end.py", [*STUDENTS, *UNDERSTOOD]),
    "taught": (f"{TRAIN}/objectives/taught.py", [*STUDENTS, *UNDERSTOOD]),
    "understood": (f"{TRAIN}/objectives/understood.py", UNDERSTOOD),
    "listening": (f"{TRAIN}/objectives/listening.py", UNDERSTOOD),
    "ear": (f"{TRAIN}/objectives/ear.py", UNDERSTOOD),
    "vocoder": (f"{TRAIN}/objectives/vocoder_gan.py", VOCODER),
    "spectra": (f"{TRAIN}/objectives/vocoder_loss.py", VOCODER),
    "echo": (f"{TRAIN}/objectives/echo.py", ECHO),
    "reader": (f"{TRAIN}/objectives/text_reader.py", ECHO),
    "means": (f"{TRAIN}/loop/means.py", ["tests/train/test_means.py"]),
    "held_out": (f"{TRAIN}/loop/held_out.py", ["tests/train/test_held_out.py"]),
    "checkpoints": (f"{TRAIN}/loop/checkpoints.py", ["tests/train/test_checkpoints.py"]),
    "disk": (f"{TRAIN}/loop/disk.py", ["tests/train/test_checkpoints.py"]),
    "data": (f"{TRAIN}/data/speech.py", BATCHES),
    "durations": (f"{TRAIN}/data/durations.py", BATCHES),
    "batch": (f"{TRAIN}/data/batch.py", ["tests/train/test_batches.py"]),
    "batches": (f"{TRAIN}/data/batches.py", STREAMS),
    "heard": (f"{TRAIN}/data/heard.py", [*BATCHES, *HEARD]),
    "clips": (f"{TRAIN}/data/clips.py", ["tests/train/test_clips.py"]),
    "latents": (f"{TRAIN}/data/latents.py", LATENTS),
    "pairing": (f"{TRAIN}/data/pairing.py", PAIRS),
    "segments": (f"{TRAIN}/data/segments.py", SEGMENTS),
    "stream": (f"{TRAIN}/data/order.py", ORDER),
    "stream_state": (f"{TRAIN}/data/stream_state.py", ORDER),
    "optim": (f"{TRAIN}/optim/optimizers.py", STEPS),
    "guards": (f"{TRAIN}/optim/guards.py", STEPS),
    "mup": (f"{TRAIN}/optim/mup.py", STEPS),
    "sampling": ("nanospeech/engine/sampling.py", ["tests/engine/test_sampling.py"]),
    "joining": ("nanospeech/book/joining.py", ["tests/book/test_book.py"]),
    "markup": ("nanospeech/text/markup.py", [MARKUP, *WORDS]),
    "ssml": ("nanospeech/text/ssml.py", [MARKUP]),
    "pauses": ("nanospeech/speech/pauses.py", ["tests/speech/test_pauses.py", *WORDS]),
    "streaming": ("nanospeech/speech/streaming.py", ["tests/speech/test_streaming.py"]),
    "user_voices": ("nanospeech/release/user_voices.py", ["tests/commands/test_voices.py"]),
    "words": ("nanospeech/speech/words.py", ["tests/speech/test_words.py"]),
    "chunks": ("nanospeech/speech/chunks.py", ["tests/speech/test_utterance.py"]),
    "wave": ("nanospeech/audio/wave.py", WAVES),
    "editing": ("nanospeech/audio/editing.py", WAVES),
    "recording": ("nanospeech/audio/recording.py", RECORDED),
    "noise": ("nanospeech/audio/noise.py", ["tests/audio/test_noise.py"]),
    "restorer": ("nanospeech/audio/restorer.py", RESTORED),
    "narrow": ("nanospeech/audio/narrow.py", ["tests/audio/test_narrow.py"]),
    "reference": ("nanospeech/speech/reference.py", RECORDED),
    "prompt": ("nanospeech/release/prompt.py", PROMPTS),
    "writers": ("nanospeech/book/writers.py", ["tests/book/test_writers.py"]),
    "card": ("nanospeech/publish/model_card.py", ["tests/publish/test_card.py"]),
    "push": ("nanospeech/publish/push.py", ["tests/publish/test_push.py"]),
    "listen": ("nanospeech/publish/listen.py", LISTEN),
    "dit": ("nanospeech_torch/dit.py", NETWORKS),
    "seconds": ("nanospeech_torch/duration.py", NETWORKS),
    "onnx_layers": ("nanospeech_onnx/layers.py", GRAPHS),
    "eight_bits": ("nanospeech_onnx/eight_bits.py", GRAPHS),
    "mlx_layers": ("nanospeech_mlx/layers.py", MLX),
    "mlx_cpu": ("nanospeech_mlx/cpu.py", MLX),
    "mlx_activations": ("nanospeech_mlx/activations.py", MLX),
    "mlx_vocoder": ("nanospeech_mlx/vocoder.py", MLX),
    "add_voice": ("nanospeech/publish/add_voice.py", VOICES),
    "subtitles": ("nanospeech/speech/subtitles.py", ["tests/speech/test_subtitles.py"]),
}
# left out: these have processes of their own, or take long
SLOW = (
    "sharded or workers or two_processes or every_kind or sweep or every_width or wider or "
    "learns_sounds or ctrl_c or two_runs or real_speech or text_is_cut or "
    "memory_is_flat or no_seam or spoken_and_joined or first_of_a_long"
)
