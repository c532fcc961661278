"""What proves to a receiver that a delivery is the relay's, and recent.

Job: the three headers of Standard Webhooks 1.0: the id, the time of this try, and the HMAC-SHA256 of
``id.timestamp.body`` in base64 behind ``v1,``.
Must not know: where the secret is kept, who posts.
"""

from __future__ import annotations

import base64
import hmac


def signed_headers(key: bytes, id_: str, at_s: int, body: bytes) -> dict[str, str]:
    """``at_s``: seconds since the epoch."""
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{signature(key, id_, at_s, body)}",
    }


def signature(key: bytes, id_: str, at_s: int, body: bytes) -> str:
    """Base64, without the version."""
    return base64.b64encode(hmac.digest(key, f"{id_}.{at_s}.".encode() + body, "sha256")).decode()
