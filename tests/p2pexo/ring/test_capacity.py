import pytest

from p2pexo.ring.capacity import cache_tokens


@pytest.mark.parametrize(
    ("planned", "dtype", "tokens"),
    [(8192, "float32", 8192), (8192, "bfloat16", 16384), (100, "uint64", 50), (0, "float32", None)],
)
def test_narrower_numbers_leave_room_for_more_tokens(planned: int, dtype: str, tokens: int | None) -> None:
    assert cache_tokens(planned, dtype) == tokens
