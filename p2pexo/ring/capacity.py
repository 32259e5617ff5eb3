"""How many tokens of conversation a ring has memory for. Pure."""

_PLANNED_BYTES = 4
"""Of a number in a cache: placements count in fp32, the widest that any machine computes in."""


def cache_tokens(planned: int, dtype: str) -> int | None:
    """Tokens whose caches fit where there is room for ``planned`` ones in fp32; None if nothing is said of it.

    ``dtype``: of the numbers in the caches, such as ``bfloat16``.
    """
    value_bytes = int("".join(filter(str.isdigit, dtype))) // 8
    return planned * _PLANNED_BYTES // value_bytes or None
