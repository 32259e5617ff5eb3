import pytest

from networking.election import Candidate, CountMembers, DropClaim, Election, ElectionSettings, MakeClaim, find_leader
from networking.transport import PeerId
from networking.wire import Claim

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")


def election(me=A, highest_term=0):
    return Election(me, ElectionSettings(settle_s=1.0, growth_settle_s=2.0), highest_term)


def member(peer, seniority, term=None, members=1, *, may_lead=True, version=1, merged=None):
    claim = None if term is None else Claim(term, members, b"", merged or {})
    return Candidate(peer, seniority, may_lead, claim, version)


def decide(subject, now, roster, alive=None):
    subject.observe(now, [(each.peer, each.claim) for each in roster if each.claim])
    return subject.decide(now, roster, len(roster) if alive is None else alive)


@pytest.mark.parametrize(
    ("roster", "leader"),
    [
        ([], None),
        ([member(A, 1)], None),
        ([member(A, 1), member(B, 2, term=4)], B),
        ([member(A, 1, term=9, members=1), member(B, 2, term=4, members=3)], B),
        ([member(A, 1, term=4, members=2), member(B, 2, term=9, members=2)], A),
        ([member(A, 1, term=4, members=2), member(B, 1, term=9, members=2)], B),
        ([member(A, 1, term=4, members=2), member(B, 1, term=4, members=2)], B),
    ],
    ids=["nobody", "no claim", "one claim", "more members", "more senior", "higher term", "higher peer id"],
)
def test_the_claim_that_stands(roster, leader):
    found = find_leader(roster)
    assert (found and found.peer) == leader


def test_the_most_senior_claims_a_vacancy_after_the_settle_time():
    subject = election()
    roster = [member(A, 1), member(B, 2)]
    assert decide(subject, 0.0, roster) is None
    assert decide(subject, 0.9, roster) is None
    assert decide(subject, 1.0, roster) == MakeClaim(term=1, members=2)


def test_the_less_senior_never_claims_while_the_more_senior_lives():
    subject = election(me=B)
    roster = [member(A, 1), member(B, 2)]
    assert all(decide(subject, now, roster) is None for now in range(100))


def test_the_peer_id_breaks_a_tie_of_seniority():
    roster = [member(A, 1), member(B, 1)]
    for me, decision in ((A, MakeClaim(1, 2)), (B, None)):
        subject = election(me)
        decide(subject, 0.0, roster)
        assert decide(subject, 2.0, roster) == decision


def test_who_may_not_lead_is_passed_over():
    subject = election(me=B)
    roster = [member(A, 1, may_lead=False), member(B, 2)]
    decide(subject, 0.0, roster)
    assert decide(subject, 1.0, roster) == MakeClaim(1, 2)


def test_who_has_not_joined_yet_does_not_claim():
    subject = election()
    assert all(decide(subject, now, [Candidate(A)]) is None for now in range(10))


def test_a_short_vacancy_starts_no_election():
    subject = election()
    led, vacant = [member(A, 1), member(B, 2, term=1)], [member(A, 1), member(B, 2)]
    for now in range(20):
        assert decide(subject, now * 0.9, led if now % 2 else vacant) is None


def test_a_new_claim_is_above_every_term_ever_seen():
    subject = election(highest_term=5)
    subject.observe(0.0, [(C, Claim(8, 3))])
    roster = [member(A, 1)]
    decide(subject, 0.0, roster)
    assert decide(subject, 1.0, roster) == MakeClaim(9, 1)


def test_the_smaller_side_drops_its_claim_only_when_the_others_carries_its_payload():
    subject = election(me=B)
    loser = member(B, 1, term=7, members=2, version=5)
    for merged in ({}, {B: 4}):
        assert decide(subject, 0.0, [member(A, 1, term=9, members=3, merged=merged), loser]) is None
    assert decide(subject, 0.1, [member(A, 1, term=10, members=3, merged={B: 5}), loser]) == DropClaim()


@pytest.mark.parametrize("other_term", [1, 2, 7])
def test_the_larger_side_claims_anew_once_above_all_terms(other_term):
    subject = election()
    mine, other = member(A, 1, term=2, members=3), member(B, 1, term=other_term, members=2, version=5)
    claim = decide(subject, 0.0, [mine, other], alive=4)
    assert isinstance(claim, MakeClaim)
    assert claim == MakeClaim(max(2, other_term) + 1, 3, {B: 5})
    mine = member(A, 1, term=claim.term, members=3, merged=claim.merged)
    assert decide(subject, 0.1, [mine, other], alive=4) is None


def test_the_larger_side_claims_anew_again_if_the_smaller_one_has_written_since():
    subject = election()
    mine = member(A, 1, term=3, members=3, merged={B: 5})
    assert decide(subject, 0.0, [mine, member(B, 1, term=2, members=2, version=6)], alive=5) == MakeClaim(4, 3, {B: 6})


def test_who_lost_its_members_counts_them_before_it_measures_itself_with_a_rival():
    subject = election()
    mine, rival = member(A, 1, term=2, members=3), member(B, 2, term=3, members=2)
    assert decide(subject, 0.0, [mine, rival], alive=1) == CountMembers(1)
    assert decide(subject, 0.0, [member(A, 1, term=2, members=1), rival], alive=1) is None


def test_lost_members_count_at_once_and_new_ones_when_they_have_stayed():
    subject = election()
    mine = [member(A, 1, term=1, members=3)]
    assert decide(subject, 0.0, mine, alive=2) == CountMembers(2)
    assert decide(subject, 1.0, mine, alive=4) is None
    assert decide(subject, 2.9, mine, alive=4) is None
    assert decide(subject, 3.0, mine, alive=4) == CountMembers(4)


def test_payloads_of_past_leaders_are_remembered_by_term():
    subject = election()
    subject.observe(0.0, [(B, Claim(1, 2, b"old")), (C, Claim(2, 2, b"new"))])
    subject.observe(1.0, [(C, Claim(2, 2, b"newer")), (A, Claim(1, 1, b""))])
    assert subject.payloads == [b"newer", b"old"]


def test_payloads_of_leaders_long_gone_are_forgotten():
    subject = election()
    subject.observe(0.0, [(B, Claim(1, 2, b"old"))])
    subject.observe(3600.0, [(C, Claim(2, 2, b"new"))])
    assert subject.payloads == [b"new"]
