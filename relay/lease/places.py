"""Where the server is: a URL of `[redis]` as a client of the library.

Job: the library's own forms (redis, rediss, unix), and two of ours, which it has no URL for:
``redis+sentinel://HOST[:PORT],HOST[:PORT]/SERVICE[/DB]`` and ``redis+cluster://HOST[:PORT][,HOST[:PORT]]``, each with
``USER:PASSWORD@`` before the hosts (for the data servers; Sentinels are asked without).
Rules: the library never retries and never waits longer than we say: its defaults take seconds to notice a dead server.
Must not know: what is said to the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from relay.config import split_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from urllib.parse import SplitResult

MAX_CONNECTIONS: Final = 64
"""Above what is ever in flight: an exhausted pool must not look like a dead server."""

_SENTINEL_PORT: Final = 26379
_REDIS_PORT: Final = 6379


class Place:
    """A server's URL. ``clustered``: published messages are counted by one node of many."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._parts = split_hosts(url)
        self.clustered = self._parts.scheme == "redis+cluster"
        self._options: dict[str, Any] = {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "retry": Retry(NoBackoff(), 0),
            "max_connections": MAX_CONNECTIONS,
            "protocol": 2,
        }

    def client(self) -> Redis | RedisCluster:
        """A client for commands. Connects when it is used."""
        if self.clustered:
            nodes = [ClusterNode(host, port) for host, port in _hosts(self._parts, _REDIS_PORT)]
            return RedisCluster(startup_nodes=nodes, **self._options, **_credentials(self._parts))
        return self._single()

    def listening(self, number: int) -> Redis:
        """A client for subscriptions: in a cluster of one node, another one for each ``number``."""
        if not self.clustered:
            return self._single()
        nodes = list(_hosts(self._parts, _REDIS_PORT))
        host, port = nodes[number % len(nodes)]
        return Redis(host=host, port=port, **self._options, **_credentials(self._parts))

    @staticmethod
    async def close(client: Redis | RedisCluster) -> None:
        """Close every connection of a client of ours; the library forgets those to Sentinels."""
        await client.aclose()
        pool = getattr(client, "connection_pool", None)
        if isinstance(pool, SentinelConnectionPool):
            for sentinel in pool.sentinel_manager.sentinels:
                await sentinel.aclose()

    def _single(self) -> Redis:
        if self._parts.scheme != "redis+sentinel":
            return Redis.from_url(self._url, **self._options)
        service, _, db = self._parts.path.strip("/").partition("/")
        options = self._options | _credentials(self._parts) | dict(parse_qsl(self._parts.query))
        sentinel = Sentinel(  # type: ignore[no-untyped-call] # the library has no types here
            list(_hosts(self._parts, _SENTINEL_PORT)),
            sentinel_kwargs={key: value for key, value in self._options.items() if key != "max_connections"},
            **options,
            db=int(db or 0),
        )
        master: Redis = sentinel.master_for(service)
        return master


def _hosts(parts: SplitResult, port: int) -> Iterator[tuple[str, int]]:
    for place in parts.netloc.rpartition("@")[2].split(","):
        host, colon, given = place.rpartition(":")
        if not colon or given.endswith("]"):
            host, given = place, str(port)
        yield host.removeprefix("[").removesuffix("]"), int(given)


def _credentials(parts: SplitResult) -> dict[str, Any]:
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    given = {"username": unquote(user), "password": unquote(password)}
    return {key: value for key, value in given.items() if value}
