"""Forgives how people write a base address: with or without ``/v1``, with it twice, with slashes too many."""

from p2pexo.api.repairs import Application, Receive, Scope, Send

_BELOW_V1 = frozenset({"chat", "completions", "responses", "messages", "models", "cluster", "placements"})


def canonical(path: str) -> str:
    """The path as the routes have it. No redirect is needed, which would turn a POST into a GET."""
    segments = [segment for segment in path.split("/") if segment]
    while segments[:2] == ["v1", "v1"]:
        del segments[0]
    if segments and segments[0] in _BELOW_V1:
        segments.insert(0, "v1")
    return "/" + "/".join(segments)


def forgive_paths(application: Application) -> Application:
    async def forgiving(scope: Scope, receive: Receive, send: Send) -> None:
        await application({**scope, "path": canonical(scope["path"])}, receive, send)

    return forgiving
