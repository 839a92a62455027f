"""The MLX backend: networks and engine. Twin of nanospeech_torch, without training."""
