import signal

import pytest

from p2pexo.ring.ending import cause_of_death
from p2pexo.ring.engine_errors import KILLED, explain

METAL = "RuntimeError: [METAL] Command buffer execution failed: "


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (
            METAL + "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
            "the GPU's memory ran out",
        ),
        (
            METAL + "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)",
            "the GPU took too long",
        ),
        (METAL + "Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)", "the GPU failed"),
        (
            "[metal::malloc] Attempting to allocate 9 bytes which is greater than the maximum allowed buffer size",
            "larger",
        ),
        ("RuntimeError: [metal::malloc] Resource limit (499000) exceeded.", "the GPU failed"),
        ("MemoryError: ", "memory ran out on this machine"),
        ("std::bad_alloc", "memory ran out on this machine"),
        ("OSError: [Errno 12] Cannot allocate memory", "memory ran out on this machine"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 9 GiB", "memory ran out on this machine"),
    ],
)
def test_what_engines_say_is_put_into_words_and_kept(text: str, meaning: str) -> None:
    assert meaning in explain(text)
    assert explain(text).endswith(f"({text})")


def test_what_is_not_known_is_left_as_it_is() -> None:
    assert explain("ValueError: shapes (3,) and (4,) do not match") == "ValueError: shapes (3,) and (4,) do not match"


def test_a_process_that_nobody_here_killed_may_have_used_up_the_memory() -> None:
    assert cause_of_death(-signal.SIGKILL, ()) == f"killed by SIGKILL ({KILLED})"


def test_a_process_that_the_gpu_took_along_says_so() -> None:
    last = (
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: " + METAL + "Insufficient Memory"
    )
    told = cause_of_death(-signal.SIGABRT, (last,))
    assert told.startswith("killed by SIGABRT; its last lines: the GPU's memory ran out;")
