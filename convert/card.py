"""Card: the README.md of a release folder. Words only."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from nanospeech.config import ModelConfig


def model_card(
    config: ModelConfig,
    parts: Mapping[str, Mapping[str, Tensor]],
    dtype: str,
    step: int | None,
    extra: str = "",
) -> str:
    """Markdown that says what the files are and how to speak with them.

    Args:
        config: what config.json holds.
        parts: tensors of each file.
        dtype: in which they are stored.
        step: optimiser steps of the speech model, if known.
        extra: further Markdown: data, licences, figures, limits.
    """
    rows = [
        f"| {part}.safetensors | {sum(t.numel() for t in tensors.values()):,} | {dtype} |"
        for part, tensors in parts.items()
    ]
    trained = f", {step:,} optimiser steps" if step else ""
    d = config.dit
    return f"""# {config.name}

A nanospeech text-to-speech model{trained}. PyTorch and MLX
read the same files.

```sh
python -m nanospeech.generate --model . --text "Hello there." --output hello.wav
```

| file | parameters | stored as |
|---|---|---|
{chr(10).join(rows)}

- Speech: DiT, {d.depth} blocks of width {d.dim}, {d.heads} heads, {d.patch_size} mel frame(s) a
  patch, text upsampling "{d.text_upsampling}".
- Text: {d.text_num_embeds} {config.tokenizer} (vocab.txt).
- Audio: {config.audio.sample_rate} Hz, {config.audio.n_mels} mel bands, hop
  {config.audio.hop_length}.

{extra}"""
