"""`[ops]`, checked as a whole.

Job: which tokens may guard the operator's API. Must not know: what it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay.config.values import ConfigFault

if TYPE_CHECKING:
    from relay.config.options import Ops

LEAST_TOKEN: Final = 16
"""Characters. Whoever knows the token may end transactions: it must not be guessed."""


def check_ops(ops: Ops) -> None:
    """Can the token be sent in a header, and is it long enough? Raises ConfigFault, which does not show it."""
    token = ops.token
    if not token:
        return
    if not all("!" <= char <= "~" for char in token):
        raise ConfigFault("ops.token: may have visible ASCII characters only, and no blanks: it travels in a header")
    if len(token) < LEAST_TOKEN:
        raise ConfigFault(
            f"ops.token: {len(token)} characters are too few, take {LEAST_TOKEN} or more (openssl rand -hex 32)"
        )
