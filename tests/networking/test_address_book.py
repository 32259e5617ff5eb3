from networking.address_book import AddressBook, AddressBookSettings
from networking.transport import Address, PeerId

A, B = PeerId("a"), PeerId("b")
OLD, NEW, OTHER = (Address(f"/ip4/10.0.0.{number}/tcp/1") for number in (1, 2, 3))


def book(**settings):
    return AddressBook(AddressBookSettings(**settings))


def addresses(subject, peer=A, now=0.0):
    return [address for each in subject if each.peer == peer for address in each.addresses(now)]


def test_the_newest_address_comes_first():
    subject = book()
    subject.give(OLD, A)
    subject.learn({A: [OTHER]})
    subject.give(NEW, A)
    assert addresses(subject) == [NEW, OTHER, OLD]
    subject.learn({A: [OLD, OTHER]})
    assert addresses(subject) == [OLD, OTHER, NEW]


def test_a_sighting_replaces_the_one_before_and_nothing_else():
    subject = book()
    subject.give(OTHER, A)
    subject.sight(0.0, A, [OLD])
    subject.sight(1.0, A, [NEW])
    assert addresses(subject) == [NEW, OTHER]


def test_what_is_said_again_is_no_news():
    subject = book()
    assert subject.give(OLD, A) and not subject.give(OLD, A)
    assert subject.sight(0.0, A, [NEW]) and not subject.sight(1.0, A, [NEW])
    assert subject.learn({A: [OTHER]}) and not subject.learn({A: [OTHER]})


def test_a_sighting_is_forgotten_after_a_while_unless_it_is_repeated():
    subject = book(sighting_lasts_s=300.0)
    subject.sight(0.0, A, [NEW])
    subject.sight(0.0, B, [NEW])
    subject.sight(200.0, B, [NEW])
    assert addresses(subject, A, 301.0) == []
    assert addresses(subject, B, 301.0) == [NEW]
    assert subject.sight(600.0, A, [NEW])
    assert addresses(subject, A, 601.0) == [NEW]


def test_however_many_are_sighted_only_so_many_are_kept():
    subject = book(sighted_peers=64, sighted_addresses=8)
    subject.give(OTHER, A)
    subject.learn({B: [OLD]})
    for number in range(5000):
        subject.sight(float(number), PeerId(f"forged-{number}"), [Address(f"/ip4/10.0.0.1/tcp/{n}") for n in range(99)])
    assert len(list(subject)) == 66
    assert addresses(subject) == [OTHER] and addresses(subject, B) == [OLD]
    assert len(addresses(subject, PeerId("forged-4999"), 5000.0)) == 8


def test_a_peer_without_a_document_is_struck_out_and_one_that_was_given_stays():
    subject = book()
    subject.give(OLD, A)
    subject.learn({A: [NEW], B: [NEW]})
    subject.learn({})
    assert [(each.peer, each.addresses(0.0)) for each in subject] == [(A, [OLD])]
