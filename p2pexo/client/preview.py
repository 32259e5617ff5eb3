"""What placing a model would do, and what else could be done, as a client sees it."""

from attrs import frozen


@frozen
class StagePreview:
    peer: str
    node: str = ""
    first_layer: int = 0
    end_layer: int = 0
    """Exclusive."""
    memory_bytes: int = 0
    """Weights, and room for conversations."""
    memory_free: int = 0
    """Bytes free for models there, before this one."""
    token_s: float | None = None
    """Seconds that one token takes in it; None if the machine has not measured its speed yet."""


@frozen
class PlacementOption:
    """A ring of so many machines, or why there can't be one."""

    machines: int
    stages: tuple[StagePreview, ...] = ()
    """Empty if it is impossible."""
    cache_tokens: int = 0
    """Tokens of conversation for which there would be room."""
    decode_tokens_per_s: float | None = None
    """Expected of one answer at a time; None while a machine has not measured its speed."""
    prefill_tokens_per_s: float | None = None
    """Expected of a long prompt; None likewise."""
    note: str = ""
    """Why no speed is expected."""
    reason: str = ""
    """Why it is impossible; empty if it isn't."""


@frozen
class PlacementPreview:
    model: str
    options: tuple[PlacementOption, ...] = ()
    chosen: int | None = None
    """The number of machines that would be used; None if the model can't be placed so."""
    running: str = ""
    """Id of the placement that runs the model already; placing gives that one."""
