"""What a node tells of a request that has ended."""

from attrs import frozen


@frozen
class EndedRequest:
    id: str
    model: str = ""
    outcome: str = ""
    """``stop``, ``length`` or ``tool_calls``, the kind of its error, or ``cancelled``: the client left, or the node stopped."""
    ended_at: float = 0.0
    """Unix seconds."""
    total_s: float = 0.0
    """From its arrival at the node that was asked."""
    placement: str = ""
    """The ring that had it last; empty if none ever had."""
    epoch: str = ""
    node: str = ""
    """The name of the one that ran the first stage of that ring."""
    rings: int = 0
    """How many it has been sent to, one after the other."""
    first_token_s: float | None = None
    """From its arrival, too."""
    queue_s: float | None = None
    """How long it waited at the ring for its prompt to be begun. This and what follows is known of whole answers alone."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the prompt."""
    completion_tokens: int | None = None
    prefill_tokens_per_s: float | None = None
    """Of the prompt, but for what was cached, to the first token."""
    decode_tokens_per_s: float | None = None
    """Behind the first token, also while another ring had to be waited for."""
