"""Paths as people write them, and as the routes have them. Pure."""

import pytest

from p2pexo.api.paths import canonical


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("//v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/v1/models/owner/name", "/v1/models/owner/name"),
        ("/v1/models/v1/models", "/v1/models/v1/models"),
        ("/", "/"),
        ("", "/"),
        ("/health/", "/health"),
        ("/assets/app.js", "/assets/app.js"),
        ("/v2/chat", "/v2/chat"),
    ],
)
def test_paths_are_forgiven(written: str, meant: str) -> None:
    assert canonical(written) == meant
