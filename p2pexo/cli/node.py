"""``p2pexo node``: run a node with the settings given."""

from p2pexo.cli.settings import NodeSettings

_DEFAULTS = NodeSettings()


def node(settings: NodeSettings = _DEFAULTS) -> int:
    """Run a node on this machine, until Ctrl-C.

    The first start makes a cluster of this machine alone; every further machine joins it with a ticket, or with the same name and secret. Everything can be said by flag or by variable; the flag wins. A variable that may hold several values takes them with spaces between.
    """
    from p2pexo.node import run_node

    return run_node(settings)
