"""What every test file may use: real nodes, where there are any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.register_assert_rewrite("relay.testing")

ANVIL = next(iter((Path(__file__).parents[1] / "node_modules" / "@foundry-rs").glob("anvil-*/bin/anvil")), None)
"""The program itself: npm's own ``anvil`` is a script that starts it, and killing that leaves the node behind."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked ``real_node`` skip where anvil is not installed, and fail where RELAY_REAL_NODE=required."""
    if item.get_closest_marker("real_node") is None or ANVIL is not None:
        return
    reason = "there is no anvil; install node.js with npm and run make test again"
    if os.environ.get("RELAY_REAL_NODE") == "required":
        pytest.fail(f"{reason} (RELAY_REAL_NODE=required)", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def anvil() -> Path:
    """The anvil executable, for tests marked ``real_node``."""
    assert ANVIL is not None
    return ANVIL
