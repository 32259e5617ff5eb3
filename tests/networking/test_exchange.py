import itertools

from networking.exchange import MAX_EXCHANGE_S, Exchange


def test_a_difference_that_lasts_no_longer_than_gossip_takes_is_left_to_gossip():
    exchange = Exchange(least_s=0.9)
    assert not exchange.differs(0.0)
    assert not exchange.differs(0.8)
    exchange.agrees()
    assert not exchange.differs(1.0)
    assert exchange.differs(2.0)
    assert not exchange.differs(2.5)
    assert exchange.differs(3.0)


def test_a_difference_at_the_very_beginning_of_time_counts_too():
    exchange = Exchange(least_s=0.9)
    assert [exchange.differs(at) for at in (0.0, 1.0)] == [False, True]


def test_an_exchange_that_is_answered_soon_may_be_followed_by_the_next():
    exchange = Exchange(least_s=0.9)
    for at in (0.0, 0.1, 0.2):
        assert exchange.begin(at)
        exchange.end(at + 0.05)


def test_who_does_not_answer_is_asked_again_after_twice_the_time_until_there_is_a_limit():
    exchange = Exchange(least_s=1.0)
    asked = [second for second in range(60) if exchange.begin(float(second))]
    waits = [after - before for before, after in itertools.pairwise(asked)]
    assert waits[:5] == [1, 2, 4, MAX_EXCHANGE_S, MAX_EXCHANGE_S]


def test_patience_follows_how_long_the_answer_took_and_comes_back_with_a_quick_one():
    exchange = Exchange(least_s=0.9)
    assert exchange.begin(0.0)
    exchange.end(5.0)
    assert exchange.patience_s == 5.0
    assert exchange.begin(6.0)
    assert not exchange.begin(10.9)
    exchange.end(10.95)
    assert exchange.begin(11.0)
    exchange.end(11.1)
    assert exchange.patience_s == 0.9


def test_a_digest_that_was_not_asked_for_says_nothing_about_the_next():
    exchange = Exchange(least_s=0.9)
    exchange.end(100.0)
    assert exchange.patience_s == 0.9
