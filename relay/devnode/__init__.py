"""The development chain: a node with real behaviour and scripted misbehaviour, served over HTTP and WebSocket.

Job: what ``relay dev`` embeds and what every test puts behind a relay. It decodes, checks, queues, mines and charges as
a node does, and does wrong exactly what a script says.
Rules: keys and accounts are public test ones; code is never run. `DevNode` is the way in from Python, the ``dev_``
methods (`relay.devnode.control`) from another process.
Must not know: the relay in front of it.
"""

from relay.devnode.arrivals import Arrival, Arrivals
from relay.devnode.chain import Chain
from relay.devnode.faults import (
    Answer,
    Delay,
    Forget,
    Hang,
    Page,
    Refuse,
    Reset,
    Status,
    Trickle,
    Truncate,
    WrongId,
)
from relay.devnode.keys import FUNDED, MNEMONIC, Funded
from relay.devnode.node import DevNode
from relay.devnode.settings import NodeSettings

__all__ = [
    "FUNDED",
    "MNEMONIC",
    "Answer",
    "Arrival",
    "Arrivals",
    "Chain",
    "Delay",
    "DevNode",
    "Forget",
    "Funded",
    "Hang",
    "NodeSettings",
    "Page",
    "Refuse",
    "Reset",
    "Status",
    "Trickle",
    "Truncate",
    "WrongId",
]
