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
    layer_weights: tuple[int, ...] = ()
    """Weights of each layer as stored; empty if all are of ``layer_bytes``."""
    tied: bool = False
    """Whether embedding and head are the same weights: a stage that has both holds them once."""
    cache_limits: tuple[int, ...] = ()
    """By layer: the tokens beyond which the cache of one text grows no more, 0 if it always grows; empty if all do."""
    sees: bool = False
    """Whether it takes pictures. None of the families that the engine runs does."""
    whole: bool = False
    """Whether it can't be cut into stages. It counts as a single layer then, without ends."""
    active_weights: tuple[int, ...] = ()
    """Of the weights of each layer those that a token is computed with, as stored: in a mixture of experts not all. Empty if
    all are."""

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """Weights of each layer as stored."""
        return self.layer_weights or (self.layer_bytes,) * self.layers

    @property
    def active_sizes(self) -> tuple[int, ...]:
        """Weights of each layer that a token is computed with, as stored."""
        return self.active_weights or self.layer_sizes

    def weight_bytes(self, first: int, end: int) -> int:
        """Weights of a stage of these layers, with the ends beside them, as stored."""
        embedding = self.embedding_bytes if first == 0 else 0
        head = self.head_bytes if end == self.layers else 0
        shared = self.embedding_bytes if self.tied and embedding and head else 0
        return sum(self.layer_sizes[first:end]) + embedding + head - shared
