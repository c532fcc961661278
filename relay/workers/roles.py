"""Who does what: the roles of N workers, and each one's share of what is bounded for all.

Rules: worker 0 has the lanes. With two workers it takes clients, too; with more it has its processor for itself.
Must not know: processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from relay.process import LEAST_UPSTREAM

if TYPE_CHECKING:
    from relay.config import Settings


@dataclass(frozen=True, slots=True)
class Role:
    """Worker ``number`` of ``count``."""

    number: int
    count: int

    @property
    def has_lanes(self) -> bool:
        """Does it carry submissions out?"""
        return self.number == 0

    @property
    def takes_clients(self) -> bool:
        """Do clients connect to it?"""
        return self.number > 0 or self.count == 2  # noqa: PLR2004 - see the rules above

    def __str__(self) -> str:
        return f"worker {self.number}"


def roles(count: int) -> list[Role]:
    """All roles of ``count`` workers (2 or more), worker 0 first."""
    return [Role(number, count) for number in range(count)]


def shared_out(settings: Settings, role: Role) -> Settings:
    """``settings`` with this role's part of the connections.

    Clients: each worker that takes them gets an equal part. Upstream: worker 0 gets half, the others share the rest.
    """
    takers = sum(one.takes_clients for one in roles(role.count))
    whole = settings.upstream.max_connections
    clients = -(-settings.server.max_connections // takers) if role.takes_clients else 1
    upstream = whole // 2 if role.has_lanes else (whole - whole // 2) // (role.count - 1)
    return msgspec.structs.replace(
        settings,
        server=msgspec.structs.replace(settings.server, max_connections=clients),
        upstream=msgspec.structs.replace(settings.upstream, max_connections=max(LEAST_UPSTREAM, upstream)),
    )
