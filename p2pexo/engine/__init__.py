"""MLX: layers, caches, sampling, text. Knows nothing of trio or sockets."""
