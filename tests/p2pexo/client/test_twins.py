"""Whatever one client can, its twin can in the same words."""

import inspect

from p2pexo.client import AsyncClient, Client


def offered(client: type) -> dict[str, tuple[list[tuple[str, object]], str | None]]:
    """Methods with the names and defaults of their parameters, and what is said of them."""
    methods = {
        "close" if name == "aclose" else name: method
        for name, method in inspect.getmembers(client, inspect.isfunction)
        if name == "__init__" or not name.startswith("_")
    }
    return {name: (_parameters(method), inspect.getdoc(method)) for name, method in methods.items()}


def _parameters(method: object) -> list[tuple[str, object]]:
    assert callable(method)
    return [(each.name, each.default) for each in inspect.signature(method).parameters.values()]


def test_both_clients_offer_the_same() -> None:
    assert offered(AsyncClient) == offered(Client)
    assert "stream_chat" in offered(Client)
