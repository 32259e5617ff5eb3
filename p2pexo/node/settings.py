"""Everything a node can be told. Each field is a flag of ``p2pexo node`` and a ``P2PEXO_…`` variable.

The text under a field is what ``--help`` and docs/cli.md show: what it is, and what happens if you change it.
"""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from attrs import field, frozen
from cyclopts import Group, Parameter, Token

from p2pexo.api.guard import is_loopback
from p2pexo.engine.limits import Limits
from p2pexo.node.values import (
    MemoryBudget,
    SettingsError,
    parse_duration,
    parse_keep_alive,
    parse_listen_address,
    parse_peer_address,
)

_NODE = Group("This node", sort_key=1)
_CLUSTER = Group("Cluster", sort_key=2)
_NETWORK = Group("Network", sort_key=3)
_API = Group("API", sort_key=4)
_MODELS = Group("Models and memory", sort_key=5)
_REQUESTS = Group("Many requests (of models whose first stage runs here)", sort_key=6)
_LOG = Group("Log", sort_key=7)


DEFAULT_HOME = Path("~/.p2pexo").expanduser()
DEFAULT_CACHE = Path("~/.cache/p2pexo").expanduser()
DEFAULT_MEMORY = MemoryBudget(share=0.7)
DEFAULT_LIMITS = Limits()


def _one(parse: Callable[[str], Any]) -> Callable[[type[Any], Sequence[Token]], Any]:
    return lambda _, tokens: parse(tokens[0].value)


def _each(parse: Callable[[str], Any]) -> Callable[[type[Any], Sequence[Token]], Any]:
    return lambda _, tokens: tuple(parse(token.value) for token in tokens)


def _option(group: Group, name: str | None = None, **more: Any) -> Parameter:
    return Parameter(name=name, group=group, negative_iterable=(), **more)


def _port(_: type[Any], value: int) -> None:
    if not 0 <= value <= 65535:
        raise ValueError(f"{value} is not a port; it must be from 0 to 65535")


def _at_least(least: int) -> Callable[[type[Any], int], None]:
    def check(_: type[Any], value: int) -> None:
        if value < least:
            raise ValueError(f"{value} is too few; it must be {least} at least")

    return check


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _secret(text: str) -> str:
    if not text.strip():
        raise ValueError("the secret is empty; for a cluster without a secret, say --open")
    return text


@Parameter(name="*")
@frozen(kw_only=True)
class NodeSettings:
    """What a node is told when it starts. Raises SettingsError when two settings contradict each other."""

    home: Annotated[Path, _option(_NODE, converter=_one(_path), show_default="~/.p2pexo")] = DEFAULT_HOME
    """Folder with this node's key, which is its identity, and the cluster's secret. Two nodes can't share one; copy it to another machine and there are two nodes of one name."""

    name: Annotated[str | None, _option(_NODE)] = None
    """What people call this node. Without it, the machine's host name."""

    may_lead: Annotated[bool, _option(_NODE)] = True
    """Whether this node may become the leader, which decides where models run. Say no on a machine that often sleeps; at least one node must say yes."""

    cluster: Annotated[str | None, _option(_CLUSTER)] = None
    """The cluster's name. Nodes of other names are not joined, nor asked to be let in. Without it, the name kept in the home, or a new one."""

    secret: Annotated[str | None, _option(_CLUSTER, show_default=False, converter=_one(_secret))] = field(
        default=None, repr=False
    )
    """The cluster's secret; whoever knows it can join. Better in the variable than on the command line, where others on this machine can read it. Without it, the one kept in the home, or a new random one."""

    join: Annotated[str | None, _option(_CLUSTER, show_default=False)] = field(default=None, repr=False)
    """A ticket that any member printed: cluster, secret and addresses in one line. It holds the secret, so better in the variable than on the command line. What it says is kept in the home, so once is enough."""

    open: Annotated[bool, _option(_CLUSTER, negative="")] = False
    """Run without a secret this time; the next start without it has the kept secret again. Everyone who reaches this machine on the network can join, read prompts and use its memory."""

    pair: Annotated[bool, _option(_CLUSTER)] = True
    """Ask a cluster on the local network to be let in, as long as this node has never been in one with others. Without it, it stays alone until somebody else asks, or it gets a ticket."""

    approve_all: Annotated[bool, _option(_CLUSTER, negative="")] = False
    """Let in every machine that asks, and compare no codes: for racks without a screen, on a network where nobody else is. Whoever is on that network can join meanwhile, and stays a member afterwards."""

    peers: Annotated[
        tuple[str, ...],
        _option(_NETWORK, "--peer", metavar="ADDRESS", converter=_each(parse_peer_address), show_default=False),
    ] = ()
    """Address of another node, such as 192.168.1.7:52416; may be given several times. Needed where nodes can't find one another by themselves, as between subnets."""

    listen: Annotated[
        tuple[str, ...],
        _option(
            _NETWORK, metavar="ADDRESS", show_default="all addresses, port 52416", converter=_each(parse_listen_address)
        ),
    ] = ("/ip4/0.0.0.0/tcp/52416",)
    """Where other nodes reach this one; may be given several times. Port 0 lets the system choose, which is needed for a second node on one machine. Fewer addresses mean fewer ways in, but also fewer ways to be reached when a cable is out."""

    loopback: Annotated[bool, _option(_NETWORK, negative="")] = False
    """Listen and link stages on 127.0.0.1 only, for a cluster that lives on one machine. Nothing else can join it."""

    mdns: Annotated[bool, _option(_NETWORK)] = True
    """Announce this node on the local network and look for others. Without it, only --peer and --join find them, and nobody can ask to be let in."""

    pairing_port: Annotated[int, _option(_NETWORK, validator=_port)] = 0
    """Port on which machines that want to join can ask; with 0 the system chooses. A firewall that lets only known ports in needs a fixed one."""

    api_host: Annotated[str, _option(_API)] = "127.0.0.1"
    """Address on which HTTP is served. With 0.0.0.0 other machines can use it, and then a key is needed."""

    api_port: Annotated[int, _option(_API, validator=_port)] = 52415
    """Port on which HTTP is served; 0 lets the system choose."""

    api_key: Annotated[str | None, _option(_API, show_default=False)] = field(default=None, repr=False)
    """Key that every HTTP request must carry. Better in the variable than on the command line."""

    no_api_key: Annotated[bool, _option(_API, negative="")] = False
    """Serve HTTP to other machines without a key: everyone who reaches the port can use the models and delete them."""

    allow_hosts: Annotated[tuple[str, ...], _option(_API, "--allow-host", metavar="NAME", show_default=False)] = ()
    """A host name under which browsers and proxies may address this node; may be given several times. This machine's own names are always allowed; every further one is a name that a hostile page could hide behind."""

    allow_origins: Annotated[
        tuple[str, ...], _option(_API, "--allow-origin", metavar="ORIGIN", show_default=False)
    ] = ()
    """Origin of a web page that may use the API from a browser, such as https://chat.example; may be given several times. Each one can do all that you can."""

    memory: Annotated[
        MemoryBudget, _option(_MODELS, metavar="SIZE", accepts_keys=False, converter=_one(MemoryBudget.parse))
    ] = DEFAULT_MEMORY
    """Memory that models may use here, such as 8GB or 70%. Raise it and larger models fit, until the system swaps and everything gets slow; lower it to keep room for your own work."""

    model_dirs: Annotated[
        tuple[Path, ...], _option(_MODELS, "--model-dir", metavar="PATH", converter=_each(_path), show_default=False)
    ] = ()
    """A folder with a model in the mlx-lm layout; may be given several times. It can then be placed by the folder's name."""

    cache: Annotated[Path, _option(_MODELS, converter=_one(_path), show_default="~/.cache/p2pexo")] = DEFAULT_CACHE
    """Folder for models that were downloaded or converted. Safe to delete while no node runs; they are then fetched again."""

    precision: Annotated[Literal["auto", "keep", "dequantise"], _option(_MODELS)] = "auto"
    """In which form weights are computed: as they are stored (keep), or as plain floats (dequantise: up to eight times the memory, and much faster on a CPU). The automatic choice keeps them on a GPU, and dequantises on a CPU if they fit."""

    blas: Annotated[str, _option(_MODELS)] = "auto"
    """The library that multiplies matrices on a Linux CPU: the fastest found (auto), the slow one that MLX was built with (reference), or the path of one. Has no meaning on a Mac."""

    autoload: Annotated[bool, _option(_MODELS)] = True
    """Place a known model when a request asks for it. Without it, such a request is refused until somebody places the model."""

    load_timeout: Annotated[float, _option(_MODELS, metavar="SECONDS", converter=_one(parse_duration))] = 600
    """How long a request waits for its model to be loaded, as 90s or 10m. Lower it and clients hear of trouble sooner; too low, and large models never get their first answer."""

    reform_timeout: Annotated[float, _option(_MODELS, metavar="SECONDS", converter=_one(parse_duration))] = 30
    """How long an answer whose ring lost a machine waits to go on, as 30s. Raise it and more answers go on, as when a machine has to start first; lower it and clients hear of trouble sooner; with 0, they hear at once."""

    keep_alive: Annotated[
        float,
        _option(_MODELS, metavar="DURATION", converter=_one(parse_keep_alive), allow_leading_hyphen=True),
    ] = 300
    """How long a model that a request loaded stays after its last use, as 5m or 300; 0 ends it after each use, -1 keeps it until somebody deletes it. Raise it and fewer requests wait for a load; lower it and memory is free for other models sooner. The node that runs the model's first stage decides, and a request may say otherwise (Ollama's keep_alive)."""

    max_running: Annotated[int, _option(_REQUESTS, validator=_at_least(1))] = DEFAULT_LIMITS.running
    """Requests that a model answers at a time, as far as the memory for their conversations reaches. Raise it and more tokens come out in all, but each answer's more slowly; lower it and later ones wait in the queue instead."""

    max_waiting: Annotated[int, _option(_REQUESTS, validator=_at_least(0))] = DEFAULT_LIMITS.waiting
    """Requests that may wait for a model; the next one is told to come back (503). Raise it and clients wait for longer; lower it and they are turned away sooner, to ask elsewhere."""

    batch_size: Annotated[int, _option(_REQUESTS, validator=_at_least(1))] = DEFAULT_LIMITS.together
    """Answers whose next tokens are computed as one. Raise it where memory is slower than arithmetic, as on a GPU; lower it and each token comes sooner when many are asked for."""

    chunk_size: Annotated[int, _option(_REQUESTS, validator=_at_least(32))] = DEFAULT_LIMITS.rows
    """Tokens of a prompt that are computed at a time. Raise it and long prompts are faster, but a step takes more memory, and ending a request longer; lower it for the opposite."""

    step_time: Annotated[float, _option(_REQUESTS, metavar="SECONDS", converter=_one(parse_duration))] = (
        DEFAULT_LIMITS.step_s
    )
    """What a piece of a prompt may take while other answers wait for their next token, as 0.15. Raise it and prompts are faster; lower it and answers flow more smoothly beside them."""

    prefix_tokens: Annotated[int, _option(_REQUESTS, validator=_at_least(0))] = DEFAULT_LIMITS.kept_tokens
    """Tokens of ended conversations that a model remembers, so that a prompt that begins alike is not computed again; never more than its memory for conversations has room for beside those that run. Raise it and more is found again; lower it and less memory is taken; with 0, nothing is remembered."""

    response_lifetime: Annotated[float, _option(_API, metavar="DURATION", converter=_one(parse_duration))] = 86400
    """How long a stored response can be read again or gone on from (Responses API), as 24h. Raise it and older conversations can be taken up, while prompts and answers stay on this disk for longer (1 GiB at most); lower it and less is kept; with 0, nothing can be taken up."""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], _option(_LOG)] = "info"
    """The least that is worth a line. With debug there are several lines a second, and a node may feel slower."""

    log_format: Annotated[Literal["text", "json"], _option(_LOG)] = "text"
    """Lines for people (text), or one JSON object per line for programs."""

    exit_with_parent: Annotated[bool, _option(_NODE, show=False, negative="")] = False
    """End when standard input ends, as it does when whoever started this node is gone."""

    mdns_service: Annotated[str, _option(_NETWORK, show=False)] = "_p2pexo._tcp.local."
    """The DNS-SD type under which nodes find one another. Those of tests keep to themselves by another one."""

    engine: Annotated[Literal["mlx", "scripted"], _option(_NODE, show=False)] = "mlx"
    """What stages compute with. The scripted engine, for tests, needs a script in place of a model and says what it is told."""

    def __attrs_post_init__(self) -> None:
        if self.open and self.secret:
            raise SettingsError(
                "--open means a cluster without a secret, but --secret names one; leave one of them out"
            )
        if self.join and (self.secret or self.cluster or self.open):
            raise SettingsError(
                "a ticket already names the cluster and its secret; leave out --cluster, --secret and --open"
            )
        if self.api_key is not None and not self.api_key.strip():
            raise SettingsError("--api-key is empty; write a key, or leave it out")
        if self.api_key and self.no_api_key:
            raise SettingsError("--no-api-key contradicts --api-key; leave one of them out")
        if not (is_loopback(self.api_host) or self.api_key or self.no_api_key):
            raise SettingsError(
                f"--api-host {self.api_host} lets other machines use this node; give an --api-key, or say --no-api-key"
            )

    @property
    def limits(self) -> Limits:
        """Of each ring whose stage 0 runs here."""
        return Limits(
            running=self.max_running,
            waiting=self.max_waiting,
            together=self.batch_size,
            rows=self.chunk_size,
            step_s=self.step_time,
            kept_tokens=self.prefix_tokens,
        )

    @property
    def display_name(self) -> str:
        return self.name or socket.gethostname().removesuffix(".local")

    @property
    def listen_addresses(self) -> tuple[str, ...]:
        """Multiaddrs to listen on: those of ``listen``, or with ``loopback`` the same ports on 127.0.0.1."""
        if not self.loopback:
            return self.listen
        return tuple(dict.fromkeys(f"/ip4/127.0.0.1/tcp/{address.split('/')[4]}" for address in self.listen))
