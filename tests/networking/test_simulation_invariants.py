"""Checks the checkers: for each invariant a broken overlay, which some run must catch by that very invariant."""

from functools import partial

import pytest
import trio

from networking.conversation import Conversation
from networking.dialling import Dialler
from networking.document import Document
from networking.documents import Documents
from networking.election import Election, find_leader
from networking.links import Contest, Links
from networking.membership import Membership
from networking.peer import Peer
from networking.simulated_run import run_seed

SEEDS = 60


def caught_by(invariant):
    """Whether a run breaks it; some runs break something else first."""
    outcomes = (run_seed(seed) for seed in range(SEEDS))
    return any(each.complaint is not None and each.complaint.startswith(invariant) for each in outcomes)


def give_no_way(self, mine, claim, rivals):
    return None


def forget_terms(self, now, claims):
    self.__dict__.setdefault("_memory", {})
    for _, claim in claims:
        self.highest_term = claim.term


def follow_whoever_counts(self, roster):
    return find_leader(roster)


def tell_only_of_oneself(tell, self, link, owners):
    tell(self, link, [self._me])


def take_anything(self, news):
    for held in news.facts:
        self.facts[held.fact.key] = held
    self.head, self.signed, self.version = news.head, news.signed, news.head.version
    return True


def take_any_life(take, self, now, news):
    document = self._documents.get(news.head.owner)
    if document is not None and document.life != news.head.life:
        del self._documents[news.head.owner]
    return take(self, now, news)


def keep_what_was_replaced(self, listed):
    missing = listed - {each.fact.version for each in self.facts.values()}
    self.version = min(missing) - 1 if missing else self.head.version


def keep_documents(self, now, members):
    pass


def be_hasty(self, seconds, strain):
    return seconds / 3


async def give_up(self, pursuit, backoff):
    if backoff:
        await trio.sleep_forever()


def prefer_the_higher_term(candidate):
    return candidate.claim.term, candidate.peer


def remember_each_claim(observe, self, now, claims):
    observe(self, now, claims)
    self._memory |= {f"{peer} in {claim}": each for peer, each in self._memory.items() for claim in [each.claim]}


def trust_nobody(self, now, link, answer):
    pass


def send_no_volatile_facts(self, now):
    pass


def keep_all_connections(self, now, peer):
    return []


def suspect_clones(self, now, link):
    return Contest(clones=tuple(self.accepted_of(link.peer)))


def as_method(function):
    """A partial is no method: its class would not bind it."""

    def method(*arguments, **options):
        return function(*arguments, **options)

    return method


@pytest.mark.parametrize(
    ("invariant", "broken"),
    [
        ("one leader leads each part", (Election, "_meet", give_no_way)),
        ("all see each other", (Conversation, "_on_answer", trust_nobody)),
        ("terms only rise", (Election, "observe", forget_terms)),
        ("nobody obeys a lower term", (Election, "follow", follow_whoever_counts)),
        ("all hold equal documents", (Conversation, "_tell", partial(tell_only_of_oneself, Conversation._tell))),
        ("old facts do not return", (Document, "take", take_anything)),
        ("copies only grow newer", (Documents, "take", partial(take_any_life, Documents.take))),
        ("what was deleted is gone", (Document, "_settle", keep_what_was_replaced)),
        ("what was deleted is gone", (Documents, "collect", keep_documents)),
        ("nobody responsive is declared dead", (Membership, "_limit", be_hasty)),
        ("nobody responsive stays missed", (Dialler, "_wait", give_up)),
        ("nobody loses its leader", ("networking.election", "_standing", prefer_the_higher_term)),
        ("everything stays bounded", (Election, "observe", partial(remember_each_claim, Election.observe))),
        ("what was written is known", (Peer, "_flush", send_no_volatile_facts)),
        ("each pair has one connection", (Links, "surplus", keep_all_connections)),
        ("nobody is warned of clones", (Links, "resolve", suspect_clones)),
    ],
    ids=lambda value: value if isinstance(value, str) else value[1],
)
@pytest.mark.long
@pytest.mark.timeout(600)  # Some are caught by one run in ten, and each run is much work.
def test_an_overlay_that_breaks_a_promise_is_caught(invariant, broken, monkeypatch):
    owner, name, replacement = broken
    if isinstance(owner, str):
        monkeypatch.setattr(f"{owner}.{name}", replacement)
    else:
        monkeypatch.setattr(owner, name, as_method(replacement))
    assert caught_by(invariant)
