"""Settings: one TOML file, environment and flags become frozen values, checked once at start.

Job: `options` is the single list of options, `values` judges what is more than a type, `sources` merges flags over
environment over file. ``config.example.toml`` and ``docs/configuration.md`` are held to the options by a test.
Rules: an unknown key is an error that names it and what was probably meant. No repr and no fault shows a secret (URLs
and headers may hold one).
Must not know: what the settings are used for.
"""

from relay.config.options import (
    DEFAULTS,
    OPTIONS,
    GasRules,
    Journal,
    Log,
    Ops,
    Ordering,
    Prechecks,
    Redis,
    Server,
    Settings,
    Upstream,
    Webhooks,
    changed,
    shown,
)
from relay.config.redis import doubts
from relay.config.sources import ENV_PREFIX, check, load, variable
from relay.config.values import ConfigFault, address, denied, masked, split_hosts, trusting
from relay.config.webhooks import secret_bytes

__all__ = [
    "DEFAULTS",
    "ENV_PREFIX",
    "OPTIONS",
    "ConfigFault",
    "GasRules",
    "Journal",
    "Log",
    "Ops",
    "Ordering",
    "Prechecks",
    "Redis",
    "Server",
    "Settings",
    "Upstream",
    "Webhooks",
    "address",
    "changed",
    "check",
    "denied",
    "doubts",
    "load",
    "masked",
    "secret_bytes",
    "shown",
    "split_hosts",
    "trusting",
    "variable",
]
