"""The benchmarks of the HTTP path run; what they measure here says nothing."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from acceptance.bench.__main__ import PACKAGES
from acceptance.bench.proxies import SEARCHED
from acceptance.bench.sheet import SHEET

if TYPE_CHECKING:
    from acceptance.rig.parts import Rig

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("group", ["heads", "https", "large", "idle"])
async def test_a_trial_measures_and_writes_nothing(rig: Rig, group: str) -> None:
    """It prints the group's section with each target, and leaves the page as it was."""
    for name, package in PACKAGES.items():
        if not shutil.which(name, path=SEARCHED):
            pytest.skip(f"{name} is missing; on Debian: apt install {package}")
    before = SHEET.read_bytes()
    printed = await rig.run(sys.executable, "-m", "acceptance.bench", "--trial", group, timeout_s=240)
    assert re.search(
        rf"<!-- bench {group} -->.*- relay.*: \*\*.*(?:met|missed).*<!-- end {group} -->", printed, re.DOTALL
    )
    assert SHEET.read_bytes() == before
