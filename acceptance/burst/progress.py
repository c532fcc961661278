"""The burst while it runs: bars on stderr, only on a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from rich.console import Console
    from rich.progress import TaskID

    from acceptance.burst.sign import Signed


class Bars:
    """One bar for signing, one for the answers, one for the receipts."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._kinds: Counter[str] = Counter()
        self._answers: TaskID | None = None
        self._receipts: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._progress.stop()

    def signing(self, work: Iterable[Signed], total: int) -> Iterator[Signed]:
        """Hand on ``work`` and count it."""
        bar = self._progress.add_task("signed", total=total, note="")
        for signed in work:
            self._progress.advance(bar)
            yield signed

    def answered(self, kind: str, total: int) -> None:
        """One more answer of this kind."""
        if self._answers is None:
            self._answers = self._progress.add_task("answered", total=total, note="")
        self._kinds[kind] += 1
        bad = [f"[red]{self._kinds[name]} {name}[/]" for name in ("refused", "failed") if self._kinds[name]]
        self._progress.update(self._answers, advance=1, note=" ".join(bad))

    def mined(self, total: int, *, more: int = 1) -> None:
        """One more receipt; none yet, to show that they are waited for."""
        if self._receipts is None:
            self._receipts = self._progress.add_task("mined", total=total, note="")
        self._progress.advance(self._receipts, more)
