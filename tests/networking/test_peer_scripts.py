"""Stories: scripts of what happens to a few peers, with what they say to each other and what each of them believes after it.

A line with ``$`` is a command; the lines below it are what the peers say whenever their beliefs change:
``time peer | members (leader with *, suspects with ?) | term``, and after ``$ listen`` what they ask and tell each other (of
questions and answers that repeat themselves the first ones). To renew them after a wanted change, run
``python tests/networking/test_peer_scripts.py``.
"""

from pathlib import Path

import pytest

from networking.actions import Broadcast, Close, SavedState, Send
from networking.peer import Peer, PeerSettings
from networking.simulation import join_payloads, sign_as, verify
from networking.transport import PeerId
from networking.wire import Answer, Ask, Delta, Goodbye, decode_fact, decode_head, encode

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))
TICK = 0.25


class Stage:
    """A few peers, joined by connections without delay."""

    def __init__(self):
        self.now = 0.0
        self.peers = {}
        self.ends = {}  # (name, connection) -> the other end
        self.queue = []
        self.held = []  # what can't be delivered for now
        self.parted = set()  # pairs of which neither hears the other
        self.still = set()  # those that stand still
        self.believed = {}
        self.said = []
        self.is_listening = False
        self.is_gathering = False
        self.overheard = set()
        self.connections = 0
        self.lives = 0

    def play(self, line):
        command, *words = line.split()
        self.said = []
        getattr(self, command)(*words)
        self.deliver()
        return self.said

    # Commands.

    def start(self, *names):
        for name in names:
            self.begin(name, PeerId(name))

    def start_barred(self, name):
        """It may not lead."""
        self.begin(name, PeerId(name), may_lead=False)

    def restart(self, name, term="1"):
        self.begin(name, PeerId(name), SavedState(incarnation=1, term=int(term), seniority=3))

    def clone(self, name, _as, other):
        self.begin(other, PeerId(name))

    def connect(self, name, other):
        self.connections += 1
        number = self.connections
        self.ends[name, number], self.ends[other, number] = (other, number), (name, number)
        for side, far in ((name, other), (other, name)):
            peer = self.peers[side]
            self.do(side, peer.connected(self.now, number, self.peers[far].me, outbound=side == name))

    def meet(self, *names):
        """Connect each with each, and hear them only when that is done."""
        self.is_gathering = True
        for number, name in enumerate(names):
            for other in names[:number]:
                self.connect(other, name)
        self.deliver()
        self.is_gathering = False
        for name in self.peers:
            self.report(name)

    def crash(self, name):
        del self.peers[name], self.believed[name]
        for end, far in list(self.ends.items()):
            if far[0] == name and end in self.ends:
                self.break_off(end)

    def leave(self, name):
        self.do(name, self.peers[name].leave(self.now))
        self.deliver()
        del self.peers[name], self.believed[name]

    def part(self, names, _from, others):
        """Nothing gets from one side to the other, and no connection closes. Each side is a word of one-letter names."""
        self.parted |= {frozenset((one, other)) for one in names for other in others}

    def heal(self):
        self.parted.clear()
        self.release()

    def stop(self, name):
        """It stands still: it reads and says nothing, and time passes without it."""
        self.still.add(name)

    def go_on(self, name):
        self.still.discard(name)
        self.release()

    def wait(self, seconds):
        for _ in range(round(float(seconds) / TICK)):
            self.now += TICK
            for name, peer in list(self.peers.items()):
                if name not in self.still:
                    self.do(name, peer.tick(self.now))
            self.deliver()

    def payload(self, name="", value=""):
        if name:
            self.do(name, self.peers[name].set_payload(self.now, value.encode()))
        self.deliver()
        for each, peer in self.peers.items():
            self.said.append(f"{each} has the payload: {', '.join(peer.view().payload.decode().splitlines())}")

    def write(self, name, key, *values):
        for value in values:
            self.do(name, self.peers[name].set_fact(self.now, key, value.encode()))

    def write_up_to(self, name, key, last):
        self.write(name, key, *map(str, range(int(last) + 1)))

    def delete(self, name, key):
        self.do(name, self.peers[name].delete_fact(self.now, key))

    def facts(self):
        for each, peer in self.peers.items():
            facts = peer.view().facts.items()
            told = [f"{key} of {owner} is {value.decode()}" for owner, of in sorted(facts) for key, value in of.items()]
            self.said.append(f"{each} knows: {', '.join(told) or 'nothing'}")

    def listen(self):
        """From now on, tell also what they say to each other."""
        self.is_listening, self.overheard = True, set()

    # What follows.

    def begin(self, name, peer, saved=None, *, may_lead=True):
        self.lives += 1
        self.peers[name] = Peer(
            peer,
            process=self.lives,
            saved=saved or SavedState(),
            sign=sign_as(peer),
            verify=verify,
            merge_payloads=join_payloads,
            settings=PeerSettings(),
            may_lead=may_lead,
        )
        self.do(name, self.peers[name].start(self.now, [f"/dns/{name}/tcp/1"]))

    def do(self, name, actions):
        for action in actions:
            if isinstance(action, Send):
                self.queue.append(((name, action.connection), action.message))
            elif isinstance(action, Broadcast):
                self.queue += [(end, ("gossip", action.message)) for end in list(self.ends) if end[0] == name]
            elif isinstance(action, Close):
                self.queue.append(((name, action.connection), None))
        self.report(name)

    def deliver(self):
        while self.queue:
            end, message = self.queue.pop(0)
            if end not in self.ends:
                continue
            far, number = self.ends[end]
            if far in self.still or frozenset((end[0], far)) in self.parted:
                self.held.append((end, message))
            elif message is None:
                self.break_off(end)
            elif isinstance(message, tuple):
                self.do(far, self.peers[far].gossip_received(self.now, encode(message[1])))
            else:
                self.overhear(end[0], far, message)
                self.do(far, self.peers[far].received(self.now, number, encode(message)))

    def release(self):
        self.queue, self.held = self.queue + self.held, []

    def break_off(self, end):
        far = self.ends.pop(end)
        self.ends.pop(far, None)
        for name, number in (end, far):
            if name in self.peers:
                self.do(name, self.peers[name].disconnected(self.now, number))

    def overhear(self, name, far, message):
        topic, text = None, ""
        if isinstance(message, Ask):
            topic, text = message.about, f"asks {far}: do you hear {message.about}?"
        elif isinstance(message, Answer):
            known = "no" if message.age_s is None else f"yes, {message.age_s:.2f} s ago"
            topic, text = (message.about, known[:2]), f"answers {far} about {message.about}: {known}"
        elif isinstance(message, Goodbye):
            text = f"says goodbye to {far}"
        elif isinstance(message, Delta):
            keys = ", ".join(decode_fact(each.body).key for each in message.facts)
            text = f"tells {far} of {decode_head(message.head.body).owner}: {keys or 'nothing new'}"
        if self.is_listening and text and (topic is None or (name, far, topic) not in self.overheard):
            self.overheard.add((name, far, topic))
            self.said.append(f"{self.now:5.2f} {name} {text}")

    def report(self, name):
        if self.is_gathering:
            return
        peer = self.peers[name]
        view = peer.view()
        marks = [
            f"{each.peer}{'*' if each.peer == view.leader else ''}{'?' if each.state.value == 'suspect' else ''}"
            for each in view.members
        ]
        strain = peer._membership.strain
        belief = f"{' '.join(marks)} | term {view.term}{f' | strain {strain}' if strain else ''}"
        warnings = [f"warns: {each}" for each in view.warnings]
        if self.believed.get(name) != (belief, warnings):
            self.said.append(f"{self.now:5.2f} {name} | {belief}")
            before = self.believed.get(name, ("", []))[1]
            self.said += [f"      {name} {each}" for each in warnings if each not in before]
            self.believed[name] = (belief, warnings)


def perform(script):
    """The script again, with what the peers say to each of its commands."""
    stage, lines = Stage(), []
    for line in script.splitlines():
        if line.startswith("$ "):
            lines += [line, *(f"  {said}" for said in stage.play(line[2:]))]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_story_goes_as_written(path):
    assert perform(path.read_text()) == path.read_text()


if __name__ == "__main__":
    for each in SCRIPTS:
        each.write_text(perform(each.read_text()))
