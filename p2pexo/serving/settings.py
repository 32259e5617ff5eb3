"""How patient the router is."""

from attrs import frozen


@frozen
class RouterSettings:
    autoload: bool = True
    """Place a known model that isn't running when it is asked for. Without it such a request gets 503."""
    load_timeout_s: float = 600.0
    """How long a request waits for a model to load. Raise it for slow disks or downloads; lower it and clients hear sooner."""
    reform_timeout_s: float = 30.0
    """How long a request waits for a broken ring to be formed anew, counted from the fault. Raise it and more answers go on;
    lower it and clients can turn elsewhere sooner. With 0 no answer that has begun goes on."""
    max_barren_losses: int = 2
    """Rings that a request may lose in a row while they computed it and before another token of it came. Raise it and more
    bad luck is survived; lower it and a request that itself breaks rings breaks fewer of them."""
    stuck_grace_s: float = 3.0
    """How long an answer that has begun waits although its ring does not fit the machines that are here. Raise it and more
    of them that are just starting again are seen; lower it and clients hear sooner."""
    max_waiting: int = 64
    """Requests that may wait for one model. Raise it and bursts are taken; lower it and memory is saved."""
    prefix_weight: float = 1.0
    """How many requests each kilobyte of a prompt's beginning outweighs that a ring has met before, when there are several rings;
    never more than have room there. Raise it and more prompts are found in caches; lower it and the rings are used more
    evenly; with 0 the load alone decides."""
    distrust_s: float = 5.0
    """How long a ring that broke a request gets no other while there is another ring. Raise it and one whose end the facts are
    slow to tell breaks fewer; lower it and one that only couldn't be reached for a moment is used again sooner."""
    retry_after_s: int = 10
    """What a client is told that was turned away. Raise it and a struggling cluster is left in peace for longer."""
