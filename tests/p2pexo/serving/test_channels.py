import pytest
import trio

from p2pexo.serving.channels import produced


@pytest.mark.parametrize("attempt", range(20))
def test_what_the_producer_raises_always_reaches_the_reader(attempt: int) -> None:
    """The scheduler's order is random; with a checkpoint at the end of the producer, about half of these were lost."""

    async def fail(send: trio.MemorySendChannel[int]) -> None:
        await send.send(attempt)
        raise ValueError("lost")

    async def main() -> None:
        async with produced(fail) as events:
            async for _ in events:
                pass

    with pytest.raises(ValueError, match="lost"):
        trio.run(main)


def test_leaving_the_block_cancels_the_producer() -> None:
    stopped = trio.Event()

    async def go_on_for_ever(send: trio.MemorySendChannel[int]) -> None:
        try:
            await send.send(1)
            await trio.sleep_forever()
        finally:
            stopped.set()

    async def main() -> None:
        async with produced(go_on_for_ever) as events:
            assert await events.receive() == 1
        assert stopped.is_set()

    trio.run(main)
