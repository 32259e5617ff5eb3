"""What the peer machine asks its driver to do."""

from attrs import frozen

from networking.wire import Message


@frozen
class SavedState:
    """What a peer keeps over restarts, so that its facts, terms and seniority never go back."""

    incarnation: int = 0
    term: int = 0
    seniority: int = 0


@frozen
class Send:
    """Send a message on a connection's control stream."""

    connection: int
    message: Message


@frozen
class Broadcast:
    message: Message


@frozen
class Close:
    connection: int
    after_sending: bool = False
    """Let what was queued go out first."""


@frozen
class Save:
    state: SavedState


@frozen
class Warn:
    text: str


@frozen
class ViewChanged:
    """What ``Peer.view`` returns may differ now."""


Action = Send | Broadcast | Close | Save | Warn | ViewChanged


class Outbox:
    """Collects actions while the machine handles one input."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self.changed = True
        """Whether anything that the view shows may have changed since the last drain."""

    def add(self, action: Action) -> None:
        self._actions.append(action)

    def send(self, connection: int, message: Message) -> None:
        self._actions.append(Send(connection, message))

    def drain(self) -> list[Action]:
        if self.changed:
            self._actions.append(ViewChanged())
        actions, self._actions, self.changed = self._actions, [], False
        return actions
