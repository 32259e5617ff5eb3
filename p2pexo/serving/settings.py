"""How patient the router is."""

from attrs import frozen


@frozen
class RouterSettings:
    autoload: bool = True
    """Place a known model that isn't running when it is asked for. Without it such a request gets 503."""
    load_timeout_s: float = 600.0
    """How long a request waits for a model to load. Raise it for slow disks or downloads; lower it and clients hear sooner."""
    reform_timeout_s: float = 30.0
    """How long a request waits for a broken ring to be formed anew. Raise it and more requests survive; lower it and clients
    can turn elsewhere sooner."""
    max_waiting: int = 64
    """Requests that may wait for one model. Raise it and bursts are taken; lower it and memory is saved."""
    retry_after_s: int = 10
    """What a client is told that was turned away. Raise it and a struggling cluster is left in peace for longer."""
