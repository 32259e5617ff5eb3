"""Which parameters of a dialect are honoured, which change nothing, and which are refused by name."""

from collections.abc import Callable, Mapping

from attrs import frozen

from p2pexo.api.fields import Fields, shown
from p2pexo.generation.errors import UnsupportedParameterError


@frozen
class Parameters:
    honoured: frozenset[str]
    ignored: frozenset[str]
    """Legal, and nothing here depends on them."""
    not_offered: Mapping[str, Callable[[Fields], bool]]
    """Legal, and only their default can be served: whether this body asks for more than that."""

    def check(self, body: Fields) -> None:
        """Raises UnsupportedParameterError for the first one that can't be served, or that nobody knows."""
        for name in body.present():
            if name in self.honoured or name in self.ignored:
                continue
            if name not in self.not_offered or self.not_offered[name](body):
                path, value = body.name_of(name), shown(body.get(name))
                raise UnsupportedParameterError(f"{path}: {value} is not supported here; leave it out", param=path)
