"""Every option: its section, its key, its type and limits, its default.

Job: the frozen sections, and how a value is shown to a person.
Rules: what may hold a secret stands in one table, `_MASKS`; reprs, faults and ``check-config`` all go through it.
Must not know: files, environment, flags.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from relay.config.values import masked

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]


class _Section(msgspec.Struct, frozen=True):
    """One table of the file."""

    def __repr__(self) -> str:
        pairs = (f"{key}={shown(key, getattr(self, key))}" for key in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(pairs)})"


class Server(_Section, frozen=True):
    """The clients' side."""

    listen: str = "127.0.0.1:8645"
    max_body_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 5_242_880
    max_batch: Positive = 1000
    cors_origins: tuple[str, ...] = ("*",)
    keepalive_s: Seconds = 650.0
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = 30.0
    max_connections: Positive = 10_000
    deny_methods: tuple[str, ...] = ()
    workers: Annotated[int, Meta(ge=1, le=64)] = 1


class Upstream(_Section, frozen=True):
    """The node."""

    url: str = ""
    ws_url: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    timeout_s: Seconds = 30.0
    connect_timeout_s: Seconds = 3.0
    max_connections: Annotated[int, Meta(ge=2)] = 256
    submit: Literal["single", "batch"] = "single"
    max_submit_batch: Annotated[int, Meta(ge=1, le=1000)] = 50
    ca_file: str = ""
    witnesses: tuple[str, ...] = ()


class Ordering(_Section, frozen=True):
    """The lanes."""

    order: Literal["nonce", "arrival"] = "nonce"
    reorder_window_ms: Annotated[int, Meta(ge=0, le=60_000)] = 1000
    on_gap: Literal["forward", "refuse"] = "forward"
    max_queue: Positive = 512
    max_wait_s: Annotated[float, Meta(ge=1, le=3600)] = 25.0
    max_senders: Positive = 100_000


class Redis(_Section, frozen=True):
    """The order between instances."""

    url: str = ""
    prefix: str = "relay"
    lease_ms: Annotated[int, Meta(ge=100, le=600_000)] = 10_000
    on_loss: Literal["local", "refuse"] = "local"
    timeout_ms: Annotated[int, Meta(ge=10, le=60_000)] = 250


GasRules = Literal[
    "auto", "off", "frontier", "homestead", "istanbul", "berlin", "shanghai", "prague", "osaka", "amsterdam"
]


class Prechecks(_Section, frozen=True):
    """What is refused before the node is asked."""

    chain_id: Literal["auto", "off"] | Positive = "auto"
    nonce: bool = True
    balance: bool = False
    min_gas_price_wei: Natural = 0
    max_gas: Natural = 0
    max_tx_bytes: Natural = 0
    gas_rules: GasRules = "auto"
    allow_types: tuple[Annotated[int, Meta(ge=0, le=127)], ...] = (0, 1, 2, 3, 4)
    unknown_types: Literal["pass", "refuse"] = "pass"
    allow_unprotected: bool = True


class Journal(_Section, frozen=True):
    """What is kept of submissions."""

    url: str = ""
    answer: Literal["verdict", "accepted"] = "verdict"
    dedupe_h: Annotated[int, Meta(ge=1, le=8760)] = 24
    confirmations: Annotated[int, Meta(ge=1, le=10_000)] = 12
    sweep_s: Annotated[float, Meta(ge=5, le=86400)] = 300.0
    max_resends: Annotated[int, Meta(ge=0, le=1000)] = 3
    retention_d: Annotated[int, Meta(ge=0, le=36_500)] = 30


class Webhooks(_Section, frozen=True):
    """Who is told what becomes of submissions."""

    urls: tuple[str, ...] = ()
    secret: str = ""


class Ops(_Section, frozen=True):
    """The operator's side."""

    listen: str = "127.0.0.1:9645"
    token: str = ""


class Log(_Section, frozen=True):
    """What is written to stdout."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Settings(_Section, frozen=True):
    """Everything, frozen."""

    server: Server = Server()
    upstream: Upstream = msgspec.field(default_factory=Upstream)
    ordering: Ordering = Ordering()
    redis: Redis = msgspec.field(default_factory=Redis)
    prechecks: Prechecks = Prechecks()
    journal: Journal = msgspec.field(default_factory=Journal)
    webhooks: Webhooks = Webhooks()
    ops: Ops = Ops()
    log: Log = Log()


SECTIONS: Final[Mapping[str, type[_Section]]] = MappingProxyType(
    {field.name: field.type for field in msgspec.structs.fields(Settings)}
)
OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {name: {field.name: field.type for field in msgspec.structs.fields(kind)} for name, kind in SECTIONS.items()}
)
"""Section → key → type, in the order of their declaration."""

DEFAULTS: Final = Settings()


def changed(settings: Settings) -> Iterator[tuple[str, str]]:
    """(``section.key``, shown value) of every option that differs from its default."""
    for section, options in OPTIONS.items():
        given, default = getattr(settings, section), getattr(DEFAULTS, section)
        for key in options:
            if (value := getattr(given, key)) != getattr(default, key):
                yield f"{section}.{key}", shown(key, value)


def shown(key: str, value: Any) -> str:
    """A value as a person would write it; masked if ``key``, in whatever section, may hold a secret."""
    if isinstance(value, _Section):
        return repr(value)
    mask = _MASKS.get(key)
    return json.dumps(mask(value) if mask and value else value, default=str, ensure_ascii=False)


def _mask_url(value: Any) -> str:
    return masked(value) if isinstance(value, str) else "***"


def _mask_urls(value: Any) -> Any:
    return [_mask_url(url) for url in value] if isinstance(value, (list, tuple)) else "***"


def _mask_all(_value: Any) -> str:
    return "***"


def _mask_headers(value: Any) -> Any:
    return dict.fromkeys(value, "***") if isinstance(value, Mapping) else "***"


_MASKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "url": _mask_url,
    "ws_url": _mask_url,
    "urls": _mask_urls,
    "headers": _mask_headers,
    "secret": _mask_all,
    "witnesses": _mask_urls,
    "token": _mask_all,
}
