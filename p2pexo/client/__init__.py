"""The Python SDK: a cluster from a program, with or without an event loop.

>>> from p2pexo.client import Client
>>> with Client("http://localhost:52415") as client:
...     print(client.chat("SmolLM2-135M-Instruct", "Hello!").text)
"""

from p2pexo.client.async_client import AsyncClient
from p2pexo.client.chat import (
    Answer,
    ChatEvent,
    ChatOptions,
    Finished,
    Message,
    Note,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolCallPart,
    Usage,
)
from p2pexo.client.cluster import ClusterState, Member, Model, Placement, Stage
from p2pexo.client.errors import (
    AccessDeniedError,
    BrokenStreamError,
    ClientError,
    ContextLengthError,
    EngineError,
    InsufficientMemoryError,
    InvalidRequestError,
    ModelNotFoundError,
    NodeError,
    NotFoundError,
    OverloadedError,
    PlacementDeletedError,
    PlacementFailedError,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
    UnsupportedParameterError,
)
from p2pexo.client.sync_client import Client

__all__ = [
    "AccessDeniedError",
    "Answer",
    "AsyncClient",
    "BrokenStreamError",
    "ChatEvent",
    "ChatOptions",
    "Client",
    "ClientError",
    "ClusterState",
    "ContextLengthError",
    "EngineError",
    "Finished",
    "InsufficientMemoryError",
    "InvalidRequestError",
    "Member",
    "Message",
    "Model",
    "ModelNotFoundError",
    "NodeError",
    "NotFoundError",
    "Note",
    "OverloadedError",
    "Placement",
    "PlacementDeletedError",
    "PlacementFailedError",
    "Reasoning",
    "Stage",
    "Text",
    "Tool",
    "ToolCall",
    "ToolCallPart",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "UnsupportedParameterError",
    "Usage",
]
