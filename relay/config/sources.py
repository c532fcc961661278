"""Where settings come from: flags over environment over file.

Job: merge the sources, then check the whole; a fault names the option's path and the source it came from.
Must not know: what an option means.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from relay.config.journal import check_journal
from relay.config.ops import check_ops
from relay.config.options import OPTIONS, SECTIONS, Settings, shown
from relay.config.redis import check_redis
from relay.config.values import ConfigFault, address, check_file, check_header, check_origin, check_url, trusting
from relay.config.webhooks import check_webhooks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ENV_PREFIX: Final = "RELAY_"


def variable(section: str, key: str) -> str:
    """The environment variable of an option: ``RELAY_UPSTREAM__URL``."""
    return f"{ENV_PREFIX}{section}__{key}".upper()


def load(
    file: Path | None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str | None] | None = None,
) -> Settings:
    """Read and check the settings. ``flags`` maps ``"section.key"`` to a value (None: not given).

    Raises ConfigFault naming the path of the first key that is unknown or whose value cannot be used, and its source.
    """
    tables = _from_file(file) if file else {}
    origins = dict.fromkeys(tables, str(file))
    environment = os.environ if environment is None else environment
    for section, key, value, origin in (*_from_environment(environment), *_from_flags(flags or {})):
        origins.setdefault(section, origin)
        origins[f"{section}.{key}"] = origin
        if isinstance(table := tables.setdefault(section, {}), dict):
            table[key] = value
    try:
        return check(tables)
    except ConfigFault as fault:
        raise ConfigFault(f"{fault}{_source(str(fault), origins)}") from None


def check(tables: Mapping[str, Any]) -> Settings:
    """``tables`` (section → key → value) as settings. Raises ConfigFault."""
    settings = Settings(**{name: _section(name, table) for name, table in tables.items()})
    server, upstream = settings.server, settings.upstream
    if address(settings.ops.listen, "ops.listen") == (taken := address(server.listen, "server.listen")) and taken[1]:
        raise ConfigFault(f"ops.listen: {settings.ops.listen} is server.listen too; choose another port")
    for origin in server.cors_origins:
        check_origin("server.cors_origins", origin)
    if upstream.url:
        check_url("upstream.url", upstream.url, "http", "https")
    for witness in upstream.witnesses:
        check_url("upstream.witnesses", witness, "http", "https")
    if upstream.ws_url:
        check_url("upstream.ws_url", upstream.ws_url, "ws", "wss")
    if upstream.ca_file:
        check_file("upstream.ca_file", upstream.ca_file)
        trusting(upstream.ca_file)
    check_redis(settings.redis)
    check_journal(settings.journal)
    check_webhooks(settings)
    check_ops(settings.ops)
    for name, value in upstream.headers.items():
        check_header("upstream.headers", name, value)
    return settings


def _from_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigFault(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigFault(f"{file}: is not TOML: {error}") from None


_Given = tuple[str, str, Any, str]
"""Section, key, value, and the variable or flag it came from."""


def _from_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    for name, text in sorted(environment.items()):
        if not name.startswith(ENV_PREFIX):
            continue
        section, separator, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
        if separator:
            yield section, key, _from_text(OPTIONS.get(section, {}).get(key), text.strip()), name
        else:
            _refuse_near_miss(name)


def _refuse_near_miss(name: str) -> None:
    """One underscore for two is a mistake. Others are not ours: Kubernetes sets RELAY_PORT for a service "relay"."""
    variables = [variable(section, key) for section, options in OPTIONS.items() for key in options]
    flattened = {meant.replace("__", "_"): meant for meant in variables}
    for near in difflib.get_close_matches(name, flattened, 1, cutoff=0.9):
        raise ConfigFault(f"{name}: is no option; did you mean {flattened[near]}?")


def _from_flags(flags: Mapping[str, str | None]) -> Iterator[_Given]:
    for path, value in flags.items():
        if value is not None:
            section, _, key = path.partition(".")
            yield section, key, _from_text(OPTIONS[section][key], value), "the command line"


def _from_text(kind: Any, text: str) -> Any:
    """A variable's text as a value: TOML where it parses as such, plain text otherwise, lists as ``a,b`` too."""
    if kind is str:
        return text
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        document = {}
    parsed = document["value"] if document.keys() == {"value"} else text
    if get_origin(kind) is tuple and not isinstance(parsed, list):
        return [_from_text(get_args(kind)[0], part.strip()) for part in text.split(",") if part.strip()]
    return parsed


def _source(text: str, origins: Mapping[str, str]) -> str:
    """Which source holds the option whose path ``text`` starts with, in brackets; nothing for a default."""
    section, _, key = re.split(r"[^\w.]", text, maxsplit=1)[0].partition(".")
    option = f"{section}.{key.partition('.')[0]}"
    origin = origins.get(option, origins.get(section))
    return f" (from {origin})" if origin else ""


def _meant(prefix: str, name: str, names: Mapping[str, Any]) -> str:
    near = [prefix + match for match in difflib.get_close_matches(name, names, 1)]
    elsewhere = [f"{section}.{name}" for section, options in OPTIONS.items() if name in options]
    if guesses := near or elsewhere:
        return f"did you mean {' or '.join(guesses)}?"
    return f"known are {', '.join(names)}"


def _section(section: str, table: Any) -> Any:
    if section not in OPTIONS:
        raise ConfigFault(f"{section}: unknown table; {_meant('', section, OPTIONS)}")
    if not isinstance(table, dict):
        raise ConfigFault(f"{section}: is a table, write [{section}] and its keys below")
    for key, value in table.items():
        _convert(section, key, value)
    return msgspec.convert(table, SECTIONS[section])


def _convert(section: str, key: str, value: Any) -> None:
    """Does ``value`` fit its option? One by one, for msgspec's own texts know neither our words nor our secrets."""
    kind = OPTIONS[section].get(key)
    if kind is None:
        raise ConfigFault(f"{section}.{key}: unknown key; {_meant(f'{section}.', key, OPTIONS[section])}")
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise ConfigFault(f"{section}.{key}: cannot be {shown(key, value)}; write {_in_words(kind)}") from None


_WORDS: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _in_words(kind: Any) -> str:
    """What a value of this type may be."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _in_words(parts[0]) + _limits(parts[1])
    if origin is Literal:
        return " or ".join(map(json.dumps, parts))
    if origin in {Union, UnionType}:
        return " or ".join(map(_in_words, parts))
    if origin is tuple:
        return f"a list, each {_in_words(parts[0])}"
    return "a table of texts" if origin is dict else _WORDS[kind]


def _limits(meta: msgspec.Meta) -> str:
    named = (("above", meta.gt), ("of at least", meta.ge), ("of at most", meta.le))
    return " and".join(f" {words} {limit}" for words, limit in named if limit is not None)
