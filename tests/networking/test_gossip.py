from unittest import mock

from libp2p import new_host

from networking.gossip import Gossip


def test_a_restart_repeats_no_number_even_if_the_clock_was_set_back() -> None:
    with mock.patch("time.time", return_value=1.0), mock.patch("time.time_ns", return_value=1):
        lives = [Gossip(new_host(), (), lambda topic, data: None) for _ in range(2)]
    first, second = [int.from_bytes(each._pubsub._next_seqno(), "big") for each in lives]
    for each in lives:
        each._pubsub.seen_messages.stop()
    assert abs(first - second) > 1_000_000
