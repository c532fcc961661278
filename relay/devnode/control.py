"""The ``dev_`` methods: scripting the node and reading its record from another process.

Job: what Python reaches as `DevNode.script`, `arrivals`, `mine` and so on, as a table of JSON-RPC methods.
Rules: each does one thing at once and answers when it is done.
Must not know: transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from relay.devnode.faults import AnyRule
from relay.devnode.params import BadParams
from relay.devnode.settings import NodeSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relay.devnode.node import DevNode
    from relay.devnode.params import Params

MAX_BYTES: Final = 1 << 28
MAX_BLOCKS: Final = 10_000


class Changes(msgspec.Struct, forbid_unknown_fields=True):
    """What can change without beginning anew."""

    base_fee: Annotated[int, Meta(ge=0)] | None = None
    gas_limit: Annotated[int, Meta(ge=21_000)] | None = None


def _script(node: DevNode, params: Params) -> int:
    """Add rules (objects whose ``do`` names what happens). How many are in force."""
    node.script.add(*params.all(AnyRule))
    return len(node.script)


def _clear(node: DevNode, _params: Params) -> bool:
    """Drop all rules, release what hangs, begin a new record. The chain stays."""
    node.clear()
    return True


def _reset(node: DevNode, params: Params) -> bool:
    """Begin anew: chain, rules, record. The object given changes settings, the others stay."""
    changed = msgspec.to_builtins(node.settings) | params.typed(0, dict[str, Any])
    try:
        node.reset(msgspec.convert(changed, NodeSettings))
    except msgspec.ValidationError as error:
        raise BadParams(f"invalid argument 0: {error}") from None
    return True


def _report(node: DevNode, _params: Params) -> dict[str, Any]:
    """All counts."""
    state = {"height": node.chain.height, "waiting": len(node.chain.pool), "hanging": node.hanging}
    return {**node.arrivals.summary(), **state, "hits": node.script.hits()}


def _arrivals(node: DevNode, params: Params) -> list[dict[str, Any]]:
    """The submissions from this number on."""
    since = params.number(0, 0)
    return [one.as_json() for one in node.arrivals if one.number >= since]


def _mine(node: DevNode, params: Params) -> list[str]:
    """Make so many blocks (one). Their hashes."""
    blocks = params.number(0, 1)
    if blocks > MAX_BLOCKS:
        raise BadParams(f"invalid argument 0: at most {MAX_BLOCKS} blocks at once")
    return [node.mine().hash for _ in range(blocks)]


def _change(node: DevNode, params: Params) -> bool:
    """Change settings of the chain as it is: what the object names."""
    wanted = params.typed(0, Changes)
    node.change(**{name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not None})
    return True


def _reorganise(node: DevNode, params: Params) -> int:
    """Take back so many blocks (one); with a second true, forget their transactions. The height."""
    node.chain.reorganise(params.number(0, 1), keep=not params.flag(1))
    return node.chain.height


def _fund(node: DevNode, params: Params) -> bool:
    """Set the balance of an address, in wei."""
    node.chain.fund(params.address(0), params.number(1))
    return True


def _bytes(_node: DevNode, params: Params) -> str:
    """A string of so many characters."""
    length = params.number(0)
    if length > MAX_BYTES:
        raise BadParams(f"invalid argument 0: at most {MAX_BYTES}")
    return "x" * length


CONTROLS: Final[Mapping[str, Callable[[DevNode, Params], Any]]] = {
    "dev_script": _script,
    "dev_clear": _clear,
    "dev_reset": _reset,
    "dev_report": _report,
    "dev_arrivals": _arrivals,
    "dev_mine": _mine,
    "dev_forget": lambda node, params: node.chain.forget(params.hash(0)),
    "dev_forget_pool": lambda node, _: node.chain.pool.clear(),
    "dev_change": _change,
    "dev_reorg": _reorganise,
    "dev_release": lambda node, _: node.release(),
    "dev_fund": _fund,
    "dev_bytes": _bytes,
}
"""Method → what it does."""
