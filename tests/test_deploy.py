"""What ``deploy/`` names exists in the product: commands, ports, paths, variables, flags.

No container engine is needed: the files are read as an engine would read them. nginx itself is run by the acceptance
suite.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from relay import config
from relay.cli import _parser
from relay.methods import SYNC_MAX_S
from relay.ops import ROUTES
from tests.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.config import Settings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
NGINX = (DEPLOY / "nginx.conf").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DOCKERFILE = [
    line.split(" ", 1)
    for line in (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
SECONDS = {"s": 1, "m": 60}


def step(name: str) -> str:
    """The arguments of the Dockerfile's only instruction of this name."""
    (found,) = [rest for instruction, rest in DOCKERFILE if instruction == name]
    return found


def image_environment() -> dict[str, str]:
    """What the image sets."""
    return dict(pair.split("=", 1) for pair in shlex.split(step("ENV")))


def settings(service: str) -> Settings:
    """The settings of a relay in the compose file; what its user must give is given."""
    given = {
        name: re.sub(r"\$\{(\w+):\?[^}]*\}", r"http://\1.example", value)
        for name, value in COMPOSE[service]["environment"].items()
    }
    return config.load(None, image_environment() | given)


def relays() -> list[str]:
    """The services that are made of the Dockerfile."""
    return [name for name, service in COMPOSE.items() if "build" in service]


def directive(name: str) -> Iterator[str]:
    """The arguments of each directive of nginx.conf with this name."""
    for line in NGINX.splitlines():
        words = line.partition("#")[0].strip().removesuffix(";").split(None, 1)
        if words[:1] == [name]:
            yield words[1]


def seconds(text: str) -> int:
    """``40s`` as a number."""
    return int(text[:-1]) * SECONDS[text[-1]]


# The Dockerfile


def test_what_the_image_is_made_of_exists() -> None:
    """Each file that is copied, among them whatever the package says it needs; a Python that the package runs on."""
    sources = [source for name, rest in DOCKERFILE if name == "COPY" for source in rest.split()[:-1]]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], "relay"} <= set(sources)
    python = re.match(r"python:3\.(\d+)", step("FROM"))
    assert python
    assert int(python[1]) >= int(PROJECT["requires-python"].removeprefix(">=3."))


def test_the_image_runs_a_command_of_the_package() -> None:
    """Its entry point is installed, and what it is started with can be parsed."""
    (entry,) = json.loads(step("ENTRYPOINT"))
    assert entry in PROJECT["scripts"]
    assert _parser().parse_args(json.loads(step("CMD"))).run


def test_the_image_listens_where_it_says() -> None:
    """Its variables are options, on all addresses of the container, and the exposed ports are theirs."""
    made = config.load(None, image_environment())
    listen = [config.address(made.server.listen, ""), config.address(made.ops.listen, "")]
    assert {host for host, _ in listen} == {"0.0.0.0"}
    assert [str(port) for _, port in listen] == step("EXPOSE").split()


def test_health_is_asked_where_it_is_told() -> None:
    """A route of the ops listener on its own port."""
    asked = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", step("HEALTHCHECK"))
    assert asked
    assert asked[2] in ROUTES
    assert int(asked[1]) == config.address(config.load(None, image_environment()).ops.listen, "")[1]


# The compose file


def test_there_are_two_relays_made_of_the_same_image() -> None:
    """Built from files that exist."""
    assert len(relays()) == 2
    for name in relays():
        build = COMPOSE[name]["build"]
        context = (DEPLOY / build["context"]).resolve()
        assert context == ROOT
        assert (context / build["dockerfile"]).exists()


def test_the_relays_settings_are_good_and_raise_no_doubt() -> None:
    """All relays the same order: one Redis, which is a service."""
    for name in relays():
        made = settings(name)
        assert list(config.doubts(made)) == []
        host = re.match(r"redis://([\w-]+):6379$", made.redis.url)
        assert host
        assert host[1] in COMPOSE
        assert host[1] in COMPOSE[name]["depends_on"]
    assert len({settings(name).redis for name in relays()}) == 1


def test_a_relay_may_drain_before_it_is_killed() -> None:
    """The engine's patience is longer than drain_s."""
    for name in relays():
        assert seconds(COMPOSE[name]["stop_grace_period"]) > settings(name).server.drain_s


async def test_the_redis_server_takes_its_flags_and_evicts_nothing() -> None:
    """A real server starts with the very flags of the compose file; an evicted lease would be a lost one."""
    server, *flags = shlex.split(COMPOSE["valkey"]["command"])
    assert server == "valkey-server"
    async with RedisServer("valkey", *flags) as running:
        assert await running.admin.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert await running.admin.config_get("save") == {"save": ""}


def test_nginx_gets_its_file_and_the_port_that_it_listens_on() -> None:
    """The mounted file exists, and the published port is the one of the file."""
    service = COMPOSE["nginx"]
    for volume in service["volumes"]:
        assert (DEPLOY / volume.split(":")[0]).exists()
    (listen,) = directive("listen")
    assert [port.split(":")[1] for port in service["ports"]] == [listen.split()[0]]


# nginx.conf


def test_nginx_knows_every_relay() -> None:
    """Each one by its service's name and the port that it listens on."""
    servers = {place.split()[0] for place in directive("server") if place != "{"}
    port = config.address(settings(relays()[0]).server.listen, "")[1]
    assert servers == {f"{name}:{port}" for name in relays()}
    assert set(COMPOSE["nginx"]["depends_on"]) == set(relays())


def test_nginx_waits_longer_and_takes_more_than_a_relay() -> None:
    """So that the client hears what the relay has to say: time-outs and sizes by the relay's defaults."""
    made = settings(relays()[0])
    longest = max(made.ordering.max_wait_s + SYNC_MAX_S, made.upstream.timeout_s)
    assert all(seconds(text) > longest for text in directive("proxy_read_timeout"))
    (size,) = directive("client_max_body_size")
    assert int(size.removesuffix("m")) * 2**20 > made.server.max_body_bytes


def test_nginx_closes_idle_connections_first() -> None:
    """A relay that closes one just as a request comes would lose it."""
    kept = [seconds(text) for text in directive("keepalive_timeout")]
    assert len(kept) == 2
    assert max(kept) < settings(relays()[0]).server.keepalive_s


def test_nginx_repeats_nothing_that_was_sent() -> None:
    """Whatever may have reached an instance is not sent to another one."""
    (cases,) = directive("proxy_next_upstream")
    assert set(cases.split()) <= {"error", "timeout"}
