"""JSON-RPC calls of the tests themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp


class Caller:
    """A node or a relay, to be asked."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def answer(self, method: str, *params: Any) -> dict[str, Any]:
        """The whole answer of one call, whatever its status."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.session.post(self.url, json=call) as response:
            answer: dict[str, Any] = await response.json(content_type=None)
            return answer

    async def call(self, method: str, *params: Any) -> Any:
        """The result of one call; an error fails the test."""
        answer = await self.answer(method, *params)
        assert "error" not in answer, f"{self.url} answers {method} with {answer['error']}"
        return answer["result"]

    async def count(self, address: str, tag: str = "latest") -> int:
        """The number of transactions of ``address``."""
        return int(await self.call("eth_getTransactionCount", address, tag), 16)
