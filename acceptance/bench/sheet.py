"""``docs/benchmarks.md``: each group's figures between its markers, with the machine they come from.

Rules: no name of a host and no path gets into it.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acceptance.bench.proxies import nginx_binary
from acceptance.rig.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

SHEET: Final = ROOT / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Findings:
    """A group's lines in Markdown, and versions of servers that took part."""

    lines: list[str]
    servers: list[str] = field(default_factory=list)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def ratio(what: str, value: float, target: float) -> str:
    """A figure beside its target, met or not."""
    return f"- {what}: **{value:.3g}**, at most {target:.3g}: {met(value <= target)}"


def met(true: bool) -> str:
    """The verdict's word."""
    return "met" if true else "**missed**"


def section(group: str, findings: Findings) -> str:
    """A group's figures between its markers, as they stand in the sheet."""
    first, last = _markers(group)
    return "\n".join([first, "", *findings.lines, "", _circumstances(group, findings.servers), "", last])


def write(group: str, findings: Findings) -> str:
    """Put a group's figures between its markers; the text that stands there now."""
    first, last = _markers(group)
    block = section(group, findings)
    sheet = SHEET.read_text("utf-8")
    found = re.search(f"{re.escape(first)}.*?{re.escape(last)}", sheet, re.DOTALL)
    assert found, f"{SHEET.name} has no place for {group}: {first} … {last}"
    SHEET.write_text(sheet.replace(found[0], block), "utf-8")
    return block


def _markers(group: str) -> tuple[str, str]:
    return f"<!-- bench {group} -->", f"<!-- end {group} -->"


def _circumstances(group: str, servers: Sequence[str]) -> str:
    nginx = subprocess.run([nginx_binary(), "-v"], capture_output=True, text=True, check=True).stderr.strip()
    programs = [
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in ("uvloop", "httptools", "aiohttp")),
        *servers,
        nginx.rpartition(" ")[2].replace("/", " "),
    ]
    return (
        f"<sub>{_cpu()}, {os.cpu_count()} cores, {_memory_gb():.0f} GB, Linux {platform.release()} · "
        f"{', '.join(programs)} · {datetime.now(UTC):%Y-%m-%d} · `make bench GROUP={group}`</sub>"
    )


def _cpu() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"))
    return found[1] if found else platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
