"""Tools are called by their names, so that no two may have the same. Pure."""

from collections.abc import Iterable

from p2pexo.api.fields import Fields


def check_names(functions: Iterable[Fields]) -> None:
    """Raises InvalidRequestError naming the first whose ``name`` an earlier one has."""
    names: set[str] = set()
    for function in functions:
        name = function.required_text("name")
        if name in names:
            raise function.wrong("name", "a name that no other tool has")
        names.add(name)
