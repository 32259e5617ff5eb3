"""The SDK's picture of the cluster is the node's own."""

import attrs
import pytest

from p2pexo import client
from p2pexo.cluster import snapshot


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        (snapshot.ClusterSnapshot, client.ClusterState),
        (snapshot.MemberView, client.Member),
        (snapshot.PlacementView, client.Placement),
        (snapshot.StageView, client.Stage),
        (snapshot.NewcomerView, client.Newcomer),
        (snapshot.AskingView, client.Asking),
    ],
)
def test_nothing_that_a_node_tells_is_lost(told: type[attrs.AttrsInstance], heard: type[attrs.AttrsInstance]) -> None:
    lacking = {each.name for each in attrs.fields(told)} - {each.name for each in attrs.fields(heard)}
    assert not lacking, f"give {heard.__name__} in p2pexo/client/cluster.py what {told.__name__} has: {lacking}"
