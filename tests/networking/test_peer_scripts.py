"""Stories: scripts of what happens to a few peers, with what each of them believes after it.

A line with ``$`` is a command; the lines below it are what the peers say whenever their beliefs change:
``time peer | members (leader with *, suspects with ?) | term``. To renew them after a wanted change, run
``python tests/networking/test_peer_scripts.py``.
"""

from pathlib import Path

import pytest

from networking.actions import Broadcast, Close, SavedState, Send
from networking.peer import Peer, PeerSettings
from networking.simulation import join_payloads, sign_as, verify
from networking.transport import PeerId
from networking.wire import encode

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))
TICK = 0.25


class Stage:
    """A few peers, joined by connections without delay."""

    def __init__(self):
        self.now = 0.0
        self.peers = {}
        self.ends = {}  # (name, connection) -> the other end
        self.queue = []
        self.believed = {}
        self.said = []
        self.connections = 0
        self.lives = 0

    def play(self, line):
        command, *words = line.split()
        self.said = []
        getattr(self, command)(*words)
        self.deliver()
        return self.said

    def start(self, *names):
        for name in names:
            self.begin(name, PeerId(name))

    def restart(self, name):
        self.begin(name, PeerId(name), SavedState(incarnation=1, term=1, seniority=3))

    def clone(self, name, _as, other):
        self.begin(other, PeerId(name))

    def begin(self, name, peer, saved=None):
        self.lives += 1
        self.peers[name] = Peer(
            peer,
            process=self.lives,
            saved=saved or SavedState(),
            sign=sign_as(peer),
            verify=verify,
            merge_payloads=join_payloads,
            settings=PeerSettings(),
        )
        self.do(name, self.peers[name].start(self.now, [f"/dns/{name}/tcp/1"]))

    def connect(self, name, other):
        self.connections += 1
        number = self.connections
        self.ends[name, number], self.ends[other, number] = (other, number), (name, number)
        for side, far in ((name, other), (other, name)):
            peer = self.peers[side]
            self.do(side, peer.connected(self.now, number, self.peers[far].me, outbound=side == name))

    def crash(self, name):
        del self.peers[name], self.believed[name]
        for end, far in list(self.ends.items()):
            if far[0] == name and end in self.ends:
                self.break_off(end)

    def wait(self, seconds):
        for _ in range(round(float(seconds) / TICK)):
            self.now += TICK
            for name, peer in list(self.peers.items()):
                self.do(name, peer.tick(self.now))
            self.deliver()

    def payload(self, name="", value=""):
        if name:
            self.do(name, self.peers[name].set_payload(self.now, value.encode()))
        self.deliver()
        for each, peer in self.peers.items():
            self.said.append(f"{each} has the payload: {', '.join(peer.view().payload.decode().splitlines())}")

    def do(self, name, actions):
        for action in actions:
            if isinstance(action, Send):
                self.queue.append(((name, action.connection), encode(action.message)))
            elif isinstance(action, Broadcast):
                self.queue += [(end, ("gossip", encode(action.message))) for end in list(self.ends) if end[0] == name]
            elif isinstance(action, Close):
                self.queue.append(((name, action.connection), None))
        self.report(name)

    def deliver(self):
        while self.queue:
            end, data = self.queue.pop(0)
            if end not in self.ends:
                continue
            far, number = self.ends[end]
            if data is None:
                self.break_off(end)
            elif isinstance(data, tuple):
                self.do(far, self.peers[far].gossip_received(self.now, data[1]))
            else:
                self.do(far, self.peers[far].received(self.now, number, data))

    def break_off(self, end):
        far = self.ends.pop(end)
        self.ends.pop(far, None)
        for name, number in (end, far):
            if name in self.peers:
                self.do(name, self.peers[name].disconnected(self.now, number))

    def report(self, name):
        view = self.peers[name].view()
        marks = [
            f"{each.peer}{'*' if each.peer == view.leader else ''}{'?' if each.state.value == 'suspect' else ''}"
            for each in view.members
        ]
        belief = f"{' '.join(marks)} | term {view.term}"
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
