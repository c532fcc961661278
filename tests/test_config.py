"""Settings: what wins over what, what is refused and in which words, and that no secret is shown."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import trustme

from relay.config import (
    DEFAULTS,
    OPTIONS,
    ConfigFault,
    Settings,
    changed,
    load,
    variable,
)

EXAMPLE = Path(__file__).parents[1] / "config.example.toml"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write a settings file; its path."""

    def written(text: str | bytes) -> Path:
        file = tmp_path / "relay.toml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return written


def fault(file: Path | None = None, environment: dict[str, str] | None = None, **flags: str) -> str:
    """The text of the fault that these sources raise."""
    with pytest.raises(ConfigFault) as raised:
        load(file, environment or {}, {path.replace("__", "."): value for path, value in flags.items()})
    return str(raised.value)


def from_environment(**values: str) -> Settings:
    return load(None, {f"RELAY_{name}": value for name, value in values.items()})


# Sources


def test_without_any_source_everything_has_its_default() -> None:
    """No file, no environment, no flags: the defaults, and nothing that differs from them."""
    assert load(None, {}) == DEFAULTS
    assert list(changed(DEFAULTS)) == []


def test_flags_win_over_environment_and_environment_over_file(write: Any) -> None:
    """Each source overrides the one below it, key by key, and leaves the others alone."""
    file = write('[server]\nlisten = "127.0.0.1:1"\nmax_batch = 1\nmax_connections = 1\n')
    environment = {"RELAY_SERVER__LISTEN": "127.0.0.1:2", "RELAY_SERVER__MAX_BATCH": "2"}
    server = load(file, environment, {"server.listen": "127.0.0.1:3"}).server
    assert (server.listen, server.max_batch, server.max_connections) == ("127.0.0.1:3", 2, 1)
    assert server.drain_s == DEFAULTS.server.drain_s


def test_a_flag_that_was_not_given_overrides_nothing() -> None:
    """None stands for a flag that is absent."""
    assert load(None, {"RELAY_OPS__LISTEN": "[::1]:7"}, {"ops.listen": None}).ops.listen == "[::1]:7"


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an environment given, that of the process counts."""
    monkeypatch.setenv("RELAY_SERVER__MAX_BATCH", "17")
    assert load(None).server.max_batch == 17


def test_settings_are_frozen() -> None:
    """Nobody can change a setting after the start."""
    with pytest.raises(AttributeError):
        DEFAULTS.server.max_batch = 5  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("SERVER__MAX_BATCH", "5", 5),
        ("SERVER__MAX_BATCH", " 5 ", 5),
        ("SERVER__DRAIN_S", "5", 5.0),
        ("PRECHECKS__BALANCE", "true", True),
        ("PRECHECKS__CHAIN_ID", "0x128", 296),
        ("PRECHECKS__CHAIN_ID", "off", "off"),
        ("ORDERING__ORDER", "arrival", "arrival"),
        ("UPSTREAM__CA_FILE", "", ""),
        ("UPSTREAM__URL", " http://node:8545\n", "http://node:8545"),
        ("UPSTREAM__HEADERS", '{ X-Key = "a=b", Other = "c" }', {"X-Key": "a=b", "Other": "c"}),
        ("SERVER__DENY_METHODS", '["debug_*", "admin_*"]', ("debug_*", "admin_*")),
        ("SERVER__DENY_METHODS", "debug_*, admin_*", ("debug_*", "admin_*")),
        ("SERVER__DENY_METHODS", "debug_*", ("debug_*",)),
        ("SERVER__DENY_METHODS", "", ()),
        ("PRECHECKS__ALLOW_TYPES", "0,2", (0, 2)),
        ("PRECHECKS__ALLOW_TYPES", "2", (2,)),
        ("PRECHECKS__ALLOW_TYPES", "[]", ()),
    ],
)
def test_environment_values_become_what_the_option_is(name: str, text: str, value: object) -> None:
    """Numbers, booleans, texts, lists in two notations, and tables, each read as the option's own type."""
    section, _, key = name.lower().partition("__")
    assert getattr(getattr(from_environment(**{name: text}), section), key) == value


def test_a_text_stays_a_text_even_if_it_looks_like_toml(write: Any) -> None:
    """A file named 5, or true, is a file name."""
    file = write(trustme.CA().cert_pem.bytes())
    link = file.parent / "true"
    link.symlink_to(file)
    assert fault(environment={"RELAY_UPSTREAM__CA_FILE": "5"}).startswith("upstream.ca_file: 5 does not exist")
    assert from_environment(UPSTREAM__CA_FILE=str(link)).upstream.ca_file == str(link)


def test_a_file_of_certificates_holds_some(write: Any) -> None:
    """What is in it is read at once, not when the first connection is made."""
    file = write("no certificate")
    text = fault(environment={"RELAY_UPSTREAM__CA_FILE": str(file)})
    assert text.startswith(f"upstream.ca_file: {file} cannot be used as a file of CA certificates")


def test_an_environment_value_cannot_smuggle_in_a_second_key() -> None:
    """A line feed does not end the value."""
    assert "max_batch: cannot be" in fault(environment={"RELAY_SERVER__MAX_BATCH": "5\nother = 1"})


# What is refused


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[upstream]\nulr = 'x'", "upstream.ulr: unknown key; did you mean upstream.url?"),
        ("[ordering]\nmax_wait = 5", "ordering.max_wait: unknown key; did you mean ordering.max_wait_s?"),
        ("[server]\nws_url = 'ws://x'", "server.ws_url: unknown key; did you mean upstream.ws_url?"),
        ("[server]\nzzz = 1", "server.zzz: unknown key; known are listen, max_body_bytes,"),
        ("[upsteam]\nurl = 'x'", "upsteam: unknown table; did you mean upstream?"),
        ("listen = 'x'", "listen: unknown table; did you mean server.listen or ops.listen?"),
        ("server = 5", "server: is a table, write [server]"),
        ("[[server]]\nlisten = 'x'", "server: is a table, write [server]"),
        ("[server]\nmax_batch = 0", "server.max_batch: cannot be 0; write a whole number of at least 1"),
        ("[server]\nmax_batch = '5'", 'server.max_batch: cannot be "5"; write a whole number of at least 1'),
        ("[server]\nmax_batch = true", "server.max_batch: cannot be true; write a whole number"),
        (
            "[server]\ndrain_s = 3601",
            "server.drain_s: cannot be 3601; write a number of at least 0 and of at most 3600",
        ),
        ("[server]\nkeepalive_s = nan", "server.keepalive_s: cannot be NaN; write a number above 0"),
        ("[server]\ncors_origins = '*'", 'server.cors_origins: cannot be "*"; write a list, each a text'),
        ("[prechecks]\nnonce = 1", "prechecks.nonce: cannot be 1; write true or false"),
        (
            "[prechecks]\nchain_id = 'autox'",
            'prechecks.chain_id: cannot be "autox"; write "auto" or "off" or a whole number of at least 1',
        ),
        ("[prechecks]\nchain_id = 0", "prechecks.chain_id: cannot be 0;"),
        (
            "[prechecks]\nallow_types = [2, 128]",
            "prechecks.allow_types: cannot be [2, 128]; write a list, each a whole number of at least 0 and of at most",
        ),
        ("[log]\nlevel = 'trace'", 'log.level: cannot be "trace"; write "debug" or "info" or "warning" or "error"'),
        ("[log]\nlevel = 2026-01-01", 'log.level: cannot be "2026-01-01"; write "debug" or'),
        ("[upstream]\nheaders = { a = 5 }", 'upstream.headers: cannot be {"a": "***"}; write a table of texts'),
        ("[upstream]\nurl = ['http://u:p@h']", 'upstream.url: cannot be "***"; write a text'),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(write: Any, text: str, words: str) -> None:
    """The fault starts with the path, says what to write, and ends with the file."""
    file = write(text)
    told = fault(file)
    assert told.startswith(words)
    assert told.endswith(f"(from {file})")


def test_a_fault_names_the_source_that_the_value_came_from(write: Any) -> None:
    """The variable, the command line or the file: whichever won."""
    file = write("[server]\nmax_batch = 5\nkeepalive_s = 0\n")
    assert fault(file).endswith(f"(from {file})")
    assert fault(file, {"RELAY_SERVER__KEEPALIVE_S": "-1"}).endswith(
        "cannot be -1; write a number above 0 and of at most 86400 (from RELAY_SERVER__KEEPALIVE_S)"
    )
    assert fault(server__listen="8080").endswith("(from the command line)")
    assert fault(environment={"RELAY_SERVR__LISTEN": "x"}).endswith("did you mean server? (from RELAY_SERVR__LISTEN)")


@pytest.mark.parametrize("name", ["RELAY_UPSTREAM_URL", "RELAY_UPSTREAM_ULR", "RELAY_SERVER_MAX_BATCH"])
def test_a_variable_that_is_nearly_an_option_is_an_error(name: str) -> None:
    """One underscore for two would otherwise be ignored in silence."""
    told = fault(environment={name: "x"})
    assert told.startswith(f"{name}: is no option; did you mean RELAY_")
    assert told.removesuffix("?").rpartition(" ")[2].count("__") == 1


def test_foreign_variables_with_our_prefix_are_left_alone() -> None:
    """Kubernetes sets these for services called relay, relay-ops and relay-upstream; tests set RELAY_REAL_NODE."""
    ports = {
        f"RELAY{service}_{name}": "tcp://10.0.0.1:8645"
        for service in ("", "_OPS", "_UPSTREAM", "_SERVER", "_LOG")
        for name in ("PORT", "SERVICE_HOST", "SERVICE_PORT", "PORT_8645_TCP", "PORT_8645_TCP_ADDR", "SERVICE_PORT_HTTP")
    }
    assert load(None, {**ports, "RELAY_REAL_NODE": "required", "RELAYX": "1"}) == DEFAULTS


def test_a_header_cannot_be_set_by_a_variable_of_its_own() -> None:
    """Three parts are no option; the table is."""
    assert "did you mean upstream.headers?" in fault(environment={"RELAY_UPSTREAM__HEADERS__X": "1"})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[server\n", "is not TOML"),
        (b"[server]\nlisten = 'a'\nlisten = 'b'", "is not TOML"),
        (b"\xff\xfe[\x00", "is not TOML"),
    ],
)
def test_a_file_that_is_not_toml_is_named(write: Any, content: bytes, words: str) -> None:
    """Broken syntax, a key twice, and another encoding."""
    file = write(content)
    assert fault(file).startswith(f"{file}: {words}")


def test_a_file_with_a_byte_order_mark_is_read(write: Any) -> None:
    """Editors on Windows write one."""
    assert load(write(b"\xef\xbb\xbf[server]\nmax_batch = 3\n"), {}).server.max_batch == 3


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, and a directory."""
    assert fault(tmp_path / "none.toml") == f"{tmp_path}/none.toml: cannot be read: No such file or directory"
    assert fault(tmp_path).startswith(f"{tmp_path}: cannot be read: ")


def test_both_listeners_on_one_port_are_refused() -> None:
    """Except on port 0, which gives each its own."""
    assert "is server.listen too" in fault(environment={"RELAY_OPS__LISTEN": DEFAULTS.server.listen})
    free = "127.0.0.1:0"
    assert from_environment(OPS__LISTEN=free, SERVER__LISTEN=free).ops.listen == free


# The example file


def test_the_example_names_every_option_with_its_default() -> None:
    """A copy of it changes nothing, and lacks nothing."""
    tables = tomllib.loads(EXAMPLE.read_text("utf-8"))
    assert {name: list(table) for name, table in tables.items()} == {
        name: list(options) for name, options in OPTIONS.items()
    }
    assert load(EXAMPLE, {}) == DEFAULTS


def test_the_example_says_what_each_option_does() -> None:
    """One or two lines of comment stand above each key."""
    lines = EXAMPLE.read_text("utf-8").splitlines()
    keys = [index for index, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert len(keys) == sum(map(len, OPTIONS.values()))
    for index in keys:
        above = [line.startswith("#") for line in reversed(lines[max(0, index - 3) : index])]
        assert above[0], lines[index]
        assert not all(above), lines[index]


def test_variables_are_named_after_section_and_key() -> None:
    """The documented form."""
    assert variable("upstream", "ws_url") == "RELAY_UPSTREAM__WS_URL"
