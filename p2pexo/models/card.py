"""What is known about a model before a byte of it is loaded: enough to place it."""

from attrs import frozen


@frozen
class Card:
    id: str
    """``owner/name``, as clients write it."""
    revision: str
    architecture: str
    """mlx-lm's ``model_type``, such as ``llama``."""
    layers: int
    hidden_size: int
    context_length: int
    """Tokens, prompt and answer together."""
    layer_bytes: int
    """Weights of one layer as stored."""
    embedding_bytes: int
    head_bytes: int
    """Final norm and output projection as the last stage holds them; with tied embeddings, those of the embedding."""
    kv_bytes_per_token: int
    """KV cache of one layer and one token, in the compute dtype."""
    dense_factor: float = 1.0
    """How much larger the weights are when dequantised to fp32; 1.0 if they are dense fp32 already."""
    description: str = ""
    source: str = ""
    """Where its files come from: ``embedded``, ``directory:PATH`` or ``hub``."""
    sees: bool = False
    """Whether it takes pictures. None of the families that the engine runs does."""
