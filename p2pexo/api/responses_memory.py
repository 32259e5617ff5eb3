"""Stored responses that live as long as the process."""

from uuid import uuid4

from attrs import define, field

from p2pexo.api.responses_output import RESPONSE_PREFIX
from p2pexo.serving.responses_store import StoredResponse


@define
class MemoryResponses:
    _stored: dict[str, StoredResponse] = field(factory=dict[str, StoredResponse], init=False)

    def new_id(self) -> str:
        return f"{RESPONSE_PREFIX}{uuid4().hex}"

    async def get(self, id: str) -> StoredResponse | None:
        return self._stored.get(id)

    async def put(self, stored: StoredResponse) -> None:
        self._stored[stored.id] = stored

    async def delete(self, id: str) -> bool:
        return self._stored.pop(id, None) is not None
