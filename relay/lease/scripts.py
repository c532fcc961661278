"""The scripts of the lease protocol, as the server wants them.

Job: read the Lua beside this file, and name each script by its SHA-1. Must not know: what they do.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final


@dataclass(frozen=True, slots=True)
class Script:
    """One script: its text, and the name that EVALSHA takes."""

    name: str
    text: str
    sha: str


def _load(name: str, *parts: str) -> Script:
    text = "".join((files("relay.lease") / f"{part}.lua").read_text("utf-8") for part in (*parts, name))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


ENTER: Final = _load("enter", "lane")
RENEW: Final = _load("renew", "lane")
LEAVE: Final = _load("leave", "lane")
PROBE: Final = _load("probe")
