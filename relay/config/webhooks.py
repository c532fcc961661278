"""`[webhooks]`, checked as a whole.

Job: which receivers there are, and the secret that their copies are signed with.
Must not know: signatures, deliveries.
Source: Standard Webhooks (secrets are ``whsec_`` and base64).
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from relay.config.values import ConfigFault, check_url, masked

if TYPE_CHECKING:
    from relay.config.options import Settings

ENCODED: Final = "whsec_"
SHORTEST: Final = 16
"""Bytes of a secret. Standard Webhooks wants 24 to 64."""


def check_webhooks(settings: Settings) -> None:
    """Can these be told? Raises ConfigFault."""
    webhooks = settings.webhooks
    if webhooks.secret:
        secret_bytes(webhooks.secret)
    for number, url in enumerate(webhooks.urls):
        check_url("webhooks.urls", url, "http", "https")
        if url in webhooks.urls[:number]:
            raise ConfigFault(f"webhooks.urls: holds {masked(url)} twice")
    if webhooks.urls and not webhooks.secret:
        raise ConfigFault(
            f"webhooks.secret: is missing, and webhooks.urls needs it; write {ENCODED} and 24 random bytes in base64"
        )
    if webhooks.urls and not settings.journal.url:
        raise ConfigFault("webhooks.urls: only what is kept can be told; set journal.url, too")


def secret_bytes(secret: str) -> bytes:
    """The key that is meant: base64 behind ``whsec_``, else the text's own bytes. Raises ConfigFault."""
    key = _decoded(secret) if secret.startswith(ENCODED) else secret.encode("utf-8", "surrogateescape")
    if len(key) < SHORTEST:
        raise ConfigFault(f"webhooks.secret: has {len(key)} bytes; take at least {SHORTEST}, better 24 random ones")
    return key


def _decoded(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(ENCODED), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigFault(f"webhooks.secret: what follows {ENCODED} is not base64") from None
