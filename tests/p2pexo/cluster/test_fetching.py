import threading
from collections.abc import Callable
from pathlib import Path

import trio

from p2pexo.cluster.fetching import FetchAbandonedError, in_thread
from p2pexo.models.card import Card

CARD = Card("owner/model", "r1", "llama", 30, 576, 4096, 100, 300, 320, 1)
Progress = Callable[[float], None]


class Store:
    def __init__(self, work: Callable[[Progress], None]) -> None:
        self.work = work

    def fetch(self, card: Card, progress: Progress) -> Path:
        self.work(progress)
        return Path("/there")


def test_what_a_thread_of_the_download_tells_arrives_in_the_node() -> None:
    told: list[tuple[float, bool]] = []

    def download(progress: Progress) -> None:
        worker = threading.Thread(target=progress, args=(0.5,))
        worker.start()
        worker.join()

    async def main() -> None:
        here = threading.get_ident()
        fetch = in_thread(Store(download))  # type: ignore[arg-type]
        path = await fetch(CARD, lambda share: told.append((share, threading.get_ident() == here)))
        assert path == Path("/there")

    trio.run(main)
    assert told == [(0.5, True)]


def test_a_fetch_that_is_cancelled_stops_the_download() -> None:
    begun, cancelled, ended = trio.Event(), threading.Event(), threading.Event()
    errors: list[Exception] = []

    def download(progress: Progress) -> None:
        progress(0.1)
        cancelled.wait()
        try:
            progress(0.2)
        except Exception as error:
            errors.append(error)
        ended.set()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            fetch = in_thread(Store(download))  # type: ignore[arg-type]
            nursery.start_soon(fetch, CARD, lambda share: begun.set())
            await begun.wait()
            nursery.cancel_scope.cancel()
        cancelled.set()
        with trio.fail_after(10):
            await trio.to_thread.run_sync(ended.wait)

    trio.run(main)
    assert [type(error) for error in errors] == [FetchAbandonedError]
