"""``p2pexo leave``: a node goes, and nothing breaks."""

from p2pexo.cli.client import Target, connect
from p2pexo.cli.tables import open_console

_DEFAULT_TARGET = Target()


def leave(node: str = "", /, *, target: Target = _DEFAULT_TARGET) -> None:
    """Let a node hand over what it runs, and end.

    Parameters
    ----------
    node
        Its name or peer id, as `p2pexo members` shows it. Without one, the node that is asked.
    """
    with connect(target) as client:
        peer = client.leave(node)
    open_console().print(f"{node or peer} is leaving", highlight=False)
