"""What the tests of the development node share: signed transfers and a client."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from eth_account import Account

from relay.devnode import FUNDED
from relay.transaction import decode

if TYPE_CHECKING:
    import aiohttp

    from relay.devnode import DevNode

SEND = "eth_sendRawTransaction"


@cache
def raw(nonce: int, sender: int = 0, value: int = 1) -> str:
    """A signed value transfer, in hex."""
    body = {
        "type": 2, "chainId": 1337, "nonce": nonce, "to": FUNDED[9].address, "value": value, "gas": 21_000,
        "maxFeePerGas": 3 * 10**9, "maxPriorityFeePerGas": 10**9,
    }  # fmt: skip
    signed = Account.sign_transaction(body, FUNDED[sender].key)
    return f"0x{signed.raw_transaction.hex()}"


def digest(nonce: int) -> str:
    """The hash of Alice's transfer."""
    return decode(bytes.fromhex(raw(nonce)[2:])).hash


def request(method: str, *params: Any, id_: Any = 1) -> dict[str, Any]:
    """A request object."""
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": list(params)}


class Client:
    """Talks to one node."""

    def __init__(self, session: aiohttp.ClientSession, node: DevNode) -> None:
        self.session = session
        self.node = node

    async def post(self, body: Any) -> Any:
        """Whatever comes back for a JSON body."""
        async with self.session.post(self.node.url, json=body) as response:
            return await response.json()

    async def result(self, method: str, *params: Any) -> Any:
        """The result of a call that must succeed."""
        answer = await self.post(request(method, *params))
        assert "error" not in answer, answer
        return answer["result"]

    async def error(self, method: str, *params: Any) -> Any:
        """The error of a call that must fail."""
        return (await self.post(request(method, *params)))["error"]
