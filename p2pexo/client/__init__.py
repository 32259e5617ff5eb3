"""The Python SDK: a cluster from a program, with or without an event loop.

>>> from p2pexo.client import Client
>>> with Client("http://localhost:52415") as client:
...     print(client.chat("SmolLM2-135M-Instruct", "Hello!").text)
"""

from p2pexo.client.async_client import AsyncClient
from p2pexo.client.attempts import Timeouts
from p2pexo.client.chat import (
    Answer,
    ChatEvent,
    Choice,
    Finished,
    Likelihood,
    Logprobs,
    Note,
    Reasoning,
    Text,
    TokenLogprob,
    ToolCallPart,
    Usage,
)
from p2pexo.client.chat_body import ChatOptions
from p2pexo.client.cluster import (
    Activity,
    Asking,
    Away,
    ClusterState,
    LinkSpeed,
    Member,
    Model,
    Newcomer,
    Placement,
    Speeds,
    Stage,
)
from p2pexo.client.collector import Collector
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
from p2pexo.client.follow import Following
from p2pexo.client.messages import Message, Picture, Tool, ToolCall
from p2pexo.client.operations import Precision
from p2pexo.client.preview import PlacementOption, PlacementPreview, StagePreview
from p2pexo.client.requests import EndedRequest
from p2pexo.client.sync_client import Client

__all__ = [
    "AccessDeniedError",
    "Activity",
    "Answer",
    "Asking",
    "AsyncClient",
    "Away",
    "BrokenStreamError",
    "ChatEvent",
    "ChatOptions",
    "Choice",
    "Client",
    "ClientError",
    "ClusterState",
    "Collector",
    "ContextLengthError",
    "EndedRequest",
    "EngineError",
    "Finished",
    "Following",
    "InsufficientMemoryError",
    "InvalidRequestError",
    "Likelihood",
    "LinkSpeed",
    "Logprobs",
    "Member",
    "Message",
    "Model",
    "ModelNotFoundError",
    "Newcomer",
    "NodeError",
    "NotFoundError",
    "Note",
    "OverloadedError",
    "Picture",
    "Placement",
    "PlacementDeletedError",
    "PlacementFailedError",
    "PlacementOption",
    "PlacementPreview",
    "Precision",
    "Reasoning",
    "Speeds",
    "Stage",
    "StagePreview",
    "Text",
    "Timeouts",
    "TokenLogprob",
    "Tool",
    "ToolCall",
    "ToolCallPart",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "UnsupportedParameterError",
    "Usage",
]
