"""Who does what among several workers, the sockets they share, and what a restart may change."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from relay.config import Journal, Ops, Server, Settings, Upstream, check
from relay.errors import Fault
from relay.workers import control, sockets
from relay.workers.restart import kept_until_restart
from relay.workers.roles import roles, shared_out
from relay.workers.sockets import LanesPlace, bound, path_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("count", "takers"), [(2, [0, 1]), (3, [1, 2]), (5, [1, 2, 3, 4])])
def test_one_worker_has_the_lanes_and_most_take_clients(count: int, takers: list[int]) -> None:
    """Worker 0 has them; it takes clients only if there would be but one other."""
    assert [role.number for role in roles(count) if role.has_lanes] == [0]
    assert [role.number for role in roles(count) if role.takes_clients] == takers


@pytest.mark.parametrize("count", [2, 3, 4, 7])
@pytest.mark.parametrize("whole", [2, 16, 256, 257])
def test_connections_are_shared_out(count: int, whole: int) -> None:
    """All clients find room, worker 0 has half of the upstream's connections, and each has at least two."""
    settings = Settings(server=Server(max_connections=1001), upstream=Upstream(max_connections=whole))
    parts = [shared_out(settings, role) for role in roles(count)]
    clients = [
        part.server.max_connections for part, role in zip(parts, roles(count), strict=True) if role.takes_clients
    ]
    upstream = [part.upstream.max_connections for part in parts]
    assert 1001 <= sum(clients) < 1001 + len(clients)
    assert max(clients) - min(clients) == 0
    assert upstream[0] == max(2, whole // 2)
    assert min(upstream) >= 2
    assert sum(upstream) <= max(whole, upstream[0] + 2 * (count - 1))


def test_settings_reach_a_worker_as_they_are() -> None:
    """Every kind of value, secrets included, by the channel alone."""
    settings = check(
        {
            "upstream": {"url": "https://u:p@node", "headers": {"Authorization": "Bearer x"}, "timeout_s": 3},
            "prechecks": {"chain_id": 5, "allow_types": [2]},
            "server": {"workers": 2, "deny_methods": ["debug_*"]},
        }
    )
    start = control.Start(1, 2, settings, (3, 4), 5, None, None)
    assert control.unpacked(control.packed(start)) == start


def accepting(sockets_: list[socket.socket]) -> tuple[str, int]:
    """Let them listen; where."""
    for one in sockets_:
        one.listen()
    host, port = sockets_[0].getsockname()[:2]
    return host, port


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_each_worker_has_a_socket_at_the_same_place(host: str) -> None:
    """A port of its own choice, the same for all; each connection lands at one of them."""
    mine = bound(f"{host}:0", 3)
    try:
        places = {accepting(one) for one in mine}
        assert len(places) == 1
        (place,) = places
        clients = [socket.create_connection(place) for _ in range(60)]
        for listener in (one for sockets_ in mine for one in sockets_):
            listener.setblocking(False)
            listener.accept()[0].close()  # sixty connections leave nobody out
        for client in clients:
            client.close()
    finally:
        for one in mine:
            sockets.close(one)


def test_a_place_that_is_taken_is_told() -> None:
    """By whatever program, another relay of the same user included, which the kernel alone would let in."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(Fault, match=f"server.listen: cannot listen on 127.0.0.1:{port}: the port is taken"):
            bound(f"127.0.0.1:{port}", 2)
    first = bound("127.0.0.1:0", 2)
    _, port = accepting(first[0])
    with pytest.raises(Fault, match="the port is taken"):
        bound(f"127.0.0.1:{port}", 2)
    for one in first:
        sockets.close(one)
    for one in bound(f"127.0.0.1:{port}", 2):
        sockets.close(one)


def test_a_name_with_two_addresses_is_bound_at_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one process would do it."""
    found = [(socket.AF_INET6, ("::1", 0, 0, 0)), (socket.AF_INET, ("127.0.0.1", 0))]
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(family, socket.SOCK_STREAM, 6, "", at) for family, at in found]
    )
    mine = bound("localhost:0", 2)
    assert [[one.family for one in sockets_] for sockets_ in mine] == [[socket.AF_INET6, socket.AF_INET]] * 2
    assert len({one.getsockname()[1] for sockets_ in mine for one in sockets_}) == 1
    for one in mine:
        sockets.close(one)


def test_the_way_to_the_lanes_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left in the directory for temporary files that anybody could remove; it leads there all the same."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = LanesPlace()
    assert list(tmp_path.iterdir()) == []
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(path_of(place.door))
        place.socket.accept()[0].close()
    place.close()


def test_a_rolling_restart_keeps_what_the_parent_has() -> None:
    """Addresses, the number of workers, the operator's API and the journal stay, and are told; all else is new."""
    old = Settings(server=Server(workers=2))
    new = Settings(
        server=Server(workers=3, listen="127.0.0.1:1", max_batch=7), ops=Ops(listen="127.0.0.1:2", token="t" * 16),
        upstream=Upstream(url="http://other"), journal=Journal(url="sqlite:///other"),
    )  # fmt: skip
    kept, told = kept_until_restart(old, new)
    assert told == ["server.listen", "server.workers", "ops.listen", "ops.token", "journal.url"]
    server = msgspec.structs.replace(old.server, max_batch=7)
    expected = msgspec.structs.replace(new, server=server, ops=old.ops, journal=old.journal)
    assert kept == expected
    assert kept_until_restart(old, old) == (old, [])
