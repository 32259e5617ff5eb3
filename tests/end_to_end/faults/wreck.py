"""What is kept of a cluster that a fault has brought into trouble: its nodes' logs, and which of them still ran."""

import shutil
import tempfile
import traceback
from pathlib import Path

from end_to_end.cluster import RealCluster


def what_happened(error: Exception, cluster: RealCluster) -> str:
    """The error with where it came from, and how each node is."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "end_to_end" in frame.filename]
    place = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(ours)) or where.name
    states = (
        f"{node.name} at {node.api_port} {_state(node.process and node.process.poll())}" for node in cluster.nodes
    )
    return f"{type(error).__name__}: {error} ({place}); {', '.join(states)}"


def keep_logs(folder: Path, name: str) -> Path:
    """Copy the logs of a cluster's nodes to where they outlive it; the folder."""
    kept = Path(tempfile.mkdtemp(prefix=f"p2pexo-failover-{name}-"))
    for log in folder.glob("*.log"):
        shutil.copy(log, kept)
    return kept


def _state(code: int | None) -> str:
    return "runs" if code is None else f"ended with {code}"
