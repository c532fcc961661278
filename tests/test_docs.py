"""The documentation says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay.cli import FLAGS
from relay.config import DEFAULTS, OPTIONS, shown, variable
from relay.errors import CATALOGUE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def rows(name: str, heading: str = "") -> list[list[str]]:
    """The cells of the first table after ``heading`` in a document, without its head."""
    text = (DOCS / name).read_text("utf-8")
    assert heading in text, f"docs/{name} has no heading {heading}"
    lines = text[text.index(heading) :].splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("|---"))
    table = lines[start + 1 :]
    end = next((index for index, line in enumerate(table) if not line.startswith("|")), len(table))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[:end]]


@pytest.mark.parametrize("section", OPTIONS)
def test_every_option_is_documented(section: str) -> None:
    """Its key, default, variable and flag as in the code, and a meaning, in the order of the code."""
    flags = {path: flag for flag, path in FLAGS.items()}
    expected = []
    for key in OPTIONS[section]:
        default = shown(key, getattr(getattr(DEFAULTS, section), key))
        flag = flags.get(f"{section}.{key}")
        names = f"`{variable(section, key)}`" + (f", `{flag}`" if flag else "")
        expected.append([f"`{key}`", f"`{default}`", names])
    found = rows("configuration.md", f"### `[{section}]`")
    assert [row[:3] for row in found] == expected
    assert all(len(row) == 4 and row[3] for row in found)


def test_no_section_is_documented_that_does_not_exist() -> None:
    """One heading for each table, in the order of the code."""
    text = (DOCS / "configuration.md").read_text("utf-8")
    assert re.findall(r"^### `\[(\w+)\]`", text, re.MULTILINE) == list(OPTIONS)


def test_every_error_is_documented() -> None:
    """Its name, code, status, text and occasion as in the catalogue, and advice, in the catalogue's order."""
    found = rows("errors.md")
    assert [row[:5] for row in found] == [
        [case.name, str(case.code), str(case.http), case.text, case.when] for case in CATALOGUE.values()
    ]
    assert all(len(row) == 6 and row[5] for row in found)


def test_what_the_errors_advise_exists() -> None:
    """Options named there are options."""
    named = re.findall(r"`(\w+)\.(\w+)`", "".join(row[5] for row in rows("errors.md")))
    assert named
    assert [name for name in named if name[1] not in OPTIONS.get(name[0], {})] == []


def test_options_named_in_the_texts_of_errors_exist() -> None:
    """A text says ``[section] key``, so that an operator finds it."""
    named = [name for case in CATALOGUE.values() for name in re.findall(r"\[(\w+)\] (\w+)", case.text + case.when)]
    assert named
    assert [name for name in named if name[1] not in OPTIONS.get(name[0], {})] == []


@pytest.mark.parametrize("document", sorted(path.relative_to(ROOT).as_posix() for path in DOCS.glob("*.md")))
def test_links_between_documents_lead_somewhere(document: str) -> None:
    """Relative links name files that exist."""
    file = ROOT / document
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text("utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []
