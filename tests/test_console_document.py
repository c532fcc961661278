"""The operator's API is what its document says: kept in docs, and tried against the real listener."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import orjson

from relay.console.openapi import document
from relay.console.problems import KINDS
from relay.console.routes import EVERYWHERE, PREFIX, ROUTES
from relay.console.shapes import schemas
from relay.lifecycle import State
from relay.testing.samples import admitted, moved
from tests.console_rig import TOKEN, Desk, at_the_desk

DOCS = Path(__file__).parents[1] / "docs"

PATHS: dict[str, tuple[State, ...]] = {
    "retry": (State.FAILED,),
    "resend": (State.SEALED, State.SENT),
    "fail": (),
    "cancel": (),
}
"""Actions, and the way of a submission that one can be tried on."""

TRIED = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "404", "409", "412"]
"""
"""A lane or a submission may have moved on, or be none: that is no wrong request. Nothing is a fault of the relay."""

TRIED_ON = """
[[operations]]
include-name = "POST /api/transactions/{{transaction}}/{action}"
parameters = {{ "path.transaction" = "{submission}" }}
"""


def text() -> bytes:
    """The document as it stands in docs."""
    return orjson.dumps(document(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def test_the_document_in_docs_is_that_of_the_code() -> None:
    """Written anew by ``python -m tests.test_console_document``."""
    assert (DOCS / "openapi.json").read_bytes() == text()


def test_every_schema_is_used_and_every_problem_occurs() -> None:
    """None is left over from something that is gone."""
    shown = text().decode()
    assert [name for name in schemas() if f"#/components/schemas/{name}" not in shown] == []
    taken = {name for route in ROUTES for name in route.problems} | set(EVERYWHERE)
    assert set(KINDS) - taken == {"no_api", "wrong_method"}


def test_the_routes_and_problems_stand_in_docs() -> None:
    """Each with its method and path; each problem with its status."""
    page = (DOCS / "operation.md").read_text("utf-8")
    found = re.findall(r"^\| `(GET|POST) (/api[^`?]*)", page, re.MULTILINE)
    assert found == [(route.method, PREFIX + route.path) for route in ROUTES]
    problems = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.*) \|$", page, re.MULTILINE)
    assert problems == [(kind.name, str(kind.status), kind.when) for kind in KINDS.values()]


async def test_what_is_asked_by_the_document_is_answered_by_it(tmp_path: Path) -> None:
    """Schemathesis asks what the document allows, and what it forbids: each answer is one that it describes."""
    async with at_the_desk(f"sqlite:///{tmp_path}/journal") as desk:
        tables = [TRIED]
        for nonce, (action, path) in enumerate(PATHS.items()):
            record = await moved(desk.journal, await admitted(desk.journal, nonce), *path)
            tables.append(TRIED_ON.format(action=action, submission=record.id))
        (tmp_path / "tried.toml").write_text("".join(tables), "utf-8")
        said, code = await tried(desk, tmp_path)
        asked = desk.hand.asked
    assert code == 0, said
    assert {"sweep", "lanes changed"} <= set(asked)
    assert any(isinstance(each, int) for each in asked), "no submission was taken up"


async def tried(desk: Desk, folder: Path) -> tuple[str, int | None]:
    """What schemathesis says, and its exit code."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "tried.toml"), "run",
        f"{desk.url}{PREFIX}/openapi.json", "--header", f"Authorization: Bearer {TOKEN}", "--seed", "5",
        "--phases", "coverage,fuzzing", "--max-examples", "4", "--no-color",
        cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    return said.decode(), process.returncode


if __name__ == "__main__":
    (DOCS / "openapi.json").write_bytes(text())
