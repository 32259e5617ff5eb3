"""What engines and the system say when memory runs out or the GPU fails, in words a user can act on. Pure."""

_SAYINGS = (
    (
        ("kIOGPUCommandBufferCallbackErrorOutOfMemory", "Insufficient Memory"),
        "the GPU's memory ran out; place the model over more machines, or lower --memory here so that less is placed on it",
    ),
    (
        ("kIOGPUCommandBufferCallbackErrorTimeout", "GPU Timeout"),
        "the GPU took too long for one piece of work and the system ended it; it may be busy with other programs",
    ),
    (
        ("maximum allowed buffer size",),
        "one piece of memory was larger than the GPU can take; send shorter prompts, or place the model over more machines",
    ),
    (
        ("kIOGPUCommandBufferCallbackError", "[METAL]", "[metal::"),
        "the GPU failed; if it happens again, restart the machine",
    ),
    (
        ("MemoryError", "bad_alloc", "Cannot allocate memory", "Unable to allocate", "out of memory", "ENOMEM"),
        "memory ran out on this machine; close other programs, lower --memory, or place the model over more machines",
    ),
)
"""What is looked for, the most telling first, and what it means."""

KILLED = "nobody here killed it; the system does that when memory runs out"


def explain(text: str) -> str:
    """The text, after what it means if that is known."""
    lowered = text.lower()
    for signs, meaning in _SAYINGS:
        if any(sign.lower() in lowered for sign in signs):
            return f"{meaning} ({text})"
    return text
