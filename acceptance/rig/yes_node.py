"""A node that says yes to everything, as fast as Python can: the other end for load that is not about the node.

Run as ``python -m acceptance.rig.yes_node``; prints ``ready http://HOST:PORT``. It keeps nothing: every account is
rich and new, every transaction is answered with its hash.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, cast

import sha3
import uvloop

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

RICH: Final = hex(10**24)
BLOCK: Final = {"number": "0x1", "baseFeePerGas": "0x3b9aca00", "gasLimit": "0x3938700", "timestamp": "0x1"}
ANSWERS: Final[dict[str, Any]] = {
    "eth_chainId": "0x539",
    "net_version": "1337",
    "eth_blockNumber": "0x1",
    "eth_getBlockByNumber": BLOCK,
    "eth_gasPrice": "0x3b9aca00",
    "eth_getTransactionCount": "0x0",
    "eth_getBalance": RICH,
    "eth_getTransactionByHash": None,
    "eth_getTransactionReceipt": None,
}


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests carry a Content-Length."""

    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A relay has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        """Answer each complete request."""
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            start = end + 4
            length = content_length(self._data[:end])
            if len(self._data) < start + length:
                return
            body, self._data = self._data[start : start + length], self._data[start + length :]
            self.take(body)

    def take(self, body: bytes) -> None:
        """Answer one request."""
        self.write(json.dumps(answer(json.loads(body))).encode())

    def write(self, body: bytes) -> None:
        """Send one answer."""
        assert self._transport is not None
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)


def answer(call: Any) -> Any:
    """The answer to a call or a batch."""
    if isinstance(call, list):
        return [answer(one) for one in call]
    envelope = {"jsonrpc": "2.0", "id": call.get("id")}
    if call["method"] == "eth_sendRawTransaction":
        return envelope | {"result": "0x" + sha3.keccak_256(bytes.fromhex(call["params"][0][2:])).hexdigest()}
    if call["method"] in ANSWERS:
        return envelope | {"result": ANSWERS[call["method"]]}
    return envelope | {"error": {"code": -32601, "message": f"the method {call['method']} does not exist"}}


def content_length(head: bytes) -> int:
    """What a head says of the body behind it."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def serve(connection: Callable[[], asyncio.Protocol] = Connection, tls: ssl.SSLContext | None = None) -> None:
    """Listen until the process is ended; with ``tls`` as ``localhost``."""
    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0, backlog=4096, ssl=tls)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"ready https://localhost:{port}" if tls else f"ready http://{host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
