"""Echo: EchoDiT, its text encoders and its latents' codec, in MLX."""
