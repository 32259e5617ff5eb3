"""``p2pexo demo``: three nodes on this machine find one another, form a ring, and answer a question."""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from attrs import frozen
from cyclopts import Parameter
from rich.console import Console

from p2pexo.cli.answer import AnswerScreen, stream_answer, summary
from p2pexo.cli.client import Target, command_errors, connect
from p2pexo.cli.display import Display, open_display
from p2pexo.cli.errors import EXIT_INTERRUPTED, CommandError, UsageError
from p2pexo.cli.fleet import Fleet, NodePlan, free_ports, is_free, log_tail, plan_nodes
from p2pexo.cli.follow import POLL_S, follow_placement
from p2pexo.cli.news import introduced
from p2pexo.cli.stop_signals import Stopped, StopSignals
from p2pexo.cli.tables import open_console, ring_table
from p2pexo.client import Client, ClusterState, Collector, UnreachableError

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The model that comes along with the installation, so that nothing is downloaded."""

QUESTION = "What is the capital of France, and what is it known for?"
MAX_TOKENS = 96
GATHER_S = 90.0
"""How long the nodes may take to start and find one another. Three of them import a lot at once."""

LOAD_S = 300.0


@frozen
class Story:
    """What the demo shows, told against the first node of a cluster that is being started."""

    client: Client
    console: Console
    alive: Callable[[], None]
    """Raises CommandError if a node has ended."""
    nodes: int
    min_stages: int
    question: str

    def tell(self) -> None:
        with open_display(self.console) as display:
            display.doing(f"starting {self.nodes} nodes")
            gather(self.client.cluster, display, self.alive, self.nodes)
            display.doing(f"loading {MODEL} in {self.min_stages} stages")
            placement_id = self.client.place(MODEL, min_stages=self.min_stages)

            def show(snapshot: ClusterState) -> None:
                self.alive()
                display.show(snapshot, placement_id)

            placement = follow_placement(self.client.cluster, placement_id, show, timeout_s=LOAD_S)
        self._ask()
        # Asked anew, since the processes have grown by the caches of the answer.
        self.console.print(ring_table(self.client.cluster().placement(placement_id) or placement))

    def _ask(self) -> None:
        self._say(f"\n> {self.question}", "bold")
        collector = Collector()
        with self.client.stream_chat(MODEL, self.question, max_completion_tokens=MAX_TOKENS, temperature=0) as events:
            stream_answer(events, collector, AnswerScreen(self.console))
        answer = collector.answer()
        if not answer.text.strip():
            raise CommandError("the answer is empty")
        self._say(f"{summary(answer)}\n", "dim")

    def _say(self, text: str, style: str) -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def gather(
    look: Callable[[], ClusterState],
    display: Display,
    alive: Callable[[], None],
    nodes: int,
    *,
    timeout_s: float = GATHER_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Until the first node sees all of them alive and one leading. Raises CommandError after ``timeout_s``."""
    deadline, here, leader = clock() + timeout_s, 0, None
    while here < nodes or leader is None:
        if clock() > deadline:
            found = f"{here} of {nodes} nodes have found one another" + ("" if leader else ", and none leads")
            raise CommandError(f"after {timeout_s:.0f} s {found}")
        pause(POLL_S)
        alive()
        try:
            snapshot = look()
        except UnreachableError:
            continue
        display.show(snapshot)
        here = sum(member.state == "alive" for member in introduced(snapshot).values())
        leader = snapshot.leader


def demo(
    *,
    once: Annotated[bool, Parameter(negative="")] = False,
    nodes: int = 3,
    min_stages: int | None = None,
    question: str = QUESTION,
    api_port: int = 52415,
) -> int:
    """Show a cluster of several nodes on this machine, and let it answer a question.

    Parameters
    ----------
    once
        End after the answer, with exit code 0, or another one if anything failed. Otherwise the cluster serves until Ctrl-C.
    nodes
        How many to start. Each takes a few hundred megabytes of memory.
    min_stages
        Over how many nodes the model is split at least. Without it, over all of them.
    question
        What to ask the model.
    api_port
        Where the first node serves HTTP; if it is taken, a free one is used.
    """
    min_stages = nodes if min_stages is None else min_stages
    if nodes < 1:
        raise UsageError(f"--nodes {nodes} is no cluster; it must be at least 1")
    if not 1 <= min_stages <= nodes:
        raise UsageError(
            f"--min-stages {min_stages} is not possible with {nodes} node(s); it must be from 1 to {nodes}"
        )
    console = open_console()
    folder, fleet = Path(tempfile.mkdtemp(prefix="p2pexo-demo-")), Fleet()

    def end_at_once() -> None:
        fleet.kill()
        shutil.rmtree(folder, ignore_errors=True)

    with StopSignals(end_at_once) as signals:
        try:
            plans = plan_nodes(nodes, choose_api_port(api_port, console), folder)
            fleet.start(plans)
            with connect(Target(url=plans[0].url)) as client:
                _tell(Story(client, console, fleet.check, nodes, min_stages, question), fleet)
            return 0 if once else serve(fleet, plans[0], console)
        except Stopped:
            return EXIT_INTERRUPTED
        finally:
            signals.hold()
            fleet.stop()
            shutil.rmtree(folder, ignore_errors=True)


def choose_api_port(wanted: int, console: Console) -> int:
    """The port wanted, or a free one, said aloud, if that is taken."""
    if is_free(wanted):
        return wanted
    port = free_ports(1)[0]
    console.print(
        f"Port {wanted} is taken, perhaps by a node that runs already; the demo uses {port}.", highlight=False
    )
    return port


def _tell(story: Story, fleet: Fleet) -> None:
    """Whatever goes wrong, the reason is likely in a log, which is gone with its folder."""
    try:
        with command_errors():
            story.tell()
    except CommandError as error:
        raise CommandError(str(error), error.details or fleet.log_tails()) from error


def serve(fleet: Fleet, first: NodePlan, console: Console) -> int:
    """Until Ctrl-C. Other nodes may end, for who wants to see what happens then; without the first one nobody answers."""
    known: set[str] = set()
    try:
        console.print(f"Serving at http://localhost:{first.api_port} until Ctrl-C.", highlight=False, soft_wrap=True)
        while True:
            time.sleep(POLL_S)
            for plan, ending in fleet.ended():
                if plan == first:
                    raise CommandError(f"{plan.name} ended ({ending})", log_tail(plan))
                if plan.name not in known:
                    known.add(plan.name)
                    console.print(f"{plan.name} ended ({ending})", highlight=False)
    except Stopped:
        return 0
