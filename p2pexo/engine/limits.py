"""How much a ring takes on at a time."""

from attrs import frozen


@frozen
class Limits:
    running: int = 32
    """Sequences computed at a time. Raise it for throughput, at the cost of KV memory and of each one's speed."""
    waiting: int = 64
    """Sequences that may queue. Raise it and clients wait longer; lower it and they are turned away sooner."""
    together: int = 16
    """Sequences of one batch that draw tokens. Raise it for throughput on machines whose memory is the limit; lower it
    and each token comes sooner when many run."""
    batches: int | None = None
    """Batches on their way at a time; None: as many as keep all stages busy, by the times measured."""
    rows: int = 512
    """Rows of one batch, so the chunk of a prompt. Raise it and prompts are faster, but a cancel waits longer for a step
    to end."""
    chunks_per_stage: float = 4.0
    """Chunks that a prompt is cut into for each stage of a ring of several, so that all of them work at it. Raise it and
    less of their time is idle, but the products are smaller and cost more for each row."""
    step_s: float = 0.15
    """What a chunk of a prompt may take on a stage while other answers wait for their next token. Raise it and prompts
    are faster; lower it and answers flow more smoothly."""
    kept_tokens: int = 32768
    """Tokens of ended conversations whose caches are kept, for prompts that begin alike, as long as running ones don't need
    the memory. Raise it and more is found again; lower it and less memory is taken; 0 keeps none."""
    cache_tokens: int | None = None
    """Tokens for which there is KV memory on every stage; None: no limit is known."""
