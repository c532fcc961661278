"""What a development chain is to be like.

Job: the one list of its settings, the same from Python and as the argument of ``dev_reset``.
Rules: an unknown key is an error that names it.
Must not know: how the settings are used.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from relay.devnode.keys import ENDOWMENT, FUNDED

Milliseconds = Annotated[float, Meta(ge=0)]


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Frozen; `msgspec.structs.replace` makes another."""

    chain_id: Annotated[int, Meta(ge=1)] = 1337
    mode: Literal["strict", "pool"] = "strict"
    """``strict``: the nonce must be the sender's next one, accepted ones counted. ``pool``: as geth's pool, with a
    queue above gaps and replacement."""
    block_time_s: Annotated[float, Meta(ge=0)] | None = 0.0
    """0: a block for each burst of accepted transactions; None: only when told to mine."""
    delay_ms: tuple[Milliseconds, Milliseconds] = (0.0, 0.0)
    """How long a submission is checked before its nonce is judged: at least, at most. This is what lets submissions
    overtake each other."""
    seed: int = 0
    """Of the delays."""
    base_fee: Annotated[int, Meta(ge=0)] = 10**9
    """Wei. It does not move: a price that moves under a test proves nothing. What bids less is kept and not mined."""
    gas_limit: Annotated[int, Meta(ge=21_000)] = 60_000_000
    """Of a block."""
    funded: dict[str, int] = msgspec.field(default_factory=lambda: {account.address: ENDOWMENT for account in FUNDED})
    """Address → wei at the start."""
    keep_arrivals: Annotated[int, Meta(ge=0)] = 250_000
    """How many submissions are remembered one by one; the counts cover all of them."""
