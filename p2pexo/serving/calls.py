"""What the router says to the node of stage 0; the answer is the stream of events itself."""

from attrs import frozen

from p2pexo.generation.request import Request

GENERATE_PROTOCOL = "/p2pexo/generate/1"


@frozen
class GenerateCall:
    """The first and only frame of the asking side. Its stream stays open as long as the answer is wanted."""

    placement_id: str
    request: Request
