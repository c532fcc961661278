"""Log lines: structured, redacted, and never in anybody's way.

Job: set structlog up so that ``structlog.get_logger("relay.submit")`` works in every room, and bring the libraries'
own logging the same way. A line is made by whoever logs, put into a bounded queue, and written by one thread: if
stdout is blocked, lines are dropped and counted, and no lane waits. Waking that thread costs whoever logs more than
making the line, so it wakes at most each `GATHER_S` and writes what has come by then.
Rules: every line passes `redaction`; a line on a terminal holds no control characters of strangers.
Must not know: what the rooms do.
"""

from __future__ import annotations

import logging
import os
import re
import select
import threading
from collections.abc import MutableMapping
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, Final

import orjson
import structlog

from relay.telemetry.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relay.config import Log
    from relay.telemetry.metrics import Cell, Metrics

MAX_LINES: Final = 10_000
"""Lines that wait for stdout: some 4 MB, a second of a busy relay."""
WRITE_LINES: Final = 256
"""Lines of one write."""
GATHER_S: Final = 0.01
"""Between the writes of a log that keeps up, lines gather for so long."""
WRITE_BYTES: Final = select.PIPE_BUF
"""Of one write: up to this a pipe takes it whole (POSIX), so that processes that share it do not cut into lines."""
CLOSE_S: Final = 1.0
"""How long `Logs.close` waits for lines still in the queue."""

_Event = MutableMapping[str, Any]


class Logs:
    """The running log of this process. Started first, closed last."""

    def __init__(self, writer: _Writer, libraries: _Libraries, metrics: Metrics) -> None:
        self._writer = writer
        self._libraries = libraries
        self._faults = metrics.faults.cell()

    @classmethod
    def start(cls, settings: Log, metrics: Metrics, stream: IO[Any], *, worker: int | None = None) -> Logs:
        """Send every logger's lines to the file descriptor of ``stream``. ``worker``: which of several this process is.

        Not to the stream itself: a thread blocked in its ``write`` holds a lock that the end of the process needs.
        """
        stream.flush()
        writer = _Writer(stream.fileno(), metrics.log_dropped.cell())
        on_terminal = os.isatty(stream.fileno())
        console = settings.format == "console" or (settings.format == "auto" and on_terminal)
        structlog.configure(
            processors=[
                *([_of_worker(worker)] if worker is not None else []),
                structlog.processors.format_exc_info,
                redact,
                _headed,
                *([_printable, _console(colors=on_terminal), _encoded] if console else [_json]),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(settings.level),
            logger_factory=lambda name="relay": _Line(name, writer.put),
            # Cached, a logger would keep the first level and queue it saw. A hot room binds its own when it is built.
            cache_logger_on_first_use=False,
        )
        writer.start(structlog.get_logger("relay.log").bind())
        return cls(writer, _Libraries(settings.level), metrics)

    def __repr__(self) -> str:
        return f"<Logs: {self._writer!r}>"

    def report(self, name: str, error: BaseException) -> None:
        """Log and count a fault of our own; ``name`` says which part broke."""
        self._faults.n += 1
        structlog.get_logger("relay").error("fault", where=name, exc_info=error)

    def close(self) -> None:
        """Write what still waits, for at most `CLOSE_S`, and give the loggers back."""
        self._libraries.close()
        self._writer.close()
        structlog.reset_defaults()


class _Writer:
    """The queue and the thread behind it."""

    def __init__(self, descriptor: int, dropped: Cell) -> None:
        self._descriptor = descriptor
        self._dropped = dropped
        self._counting = threading.Lock()
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._open = True
        self._hurry = threading.Event()

    def __repr__(self) -> str:
        return f"{self._lines.qsize()} lines waiting, {self._dropped.n} dropped"

    def start(self, log: structlog.typing.FilteringBoundLogger) -> None:
        """Begin to write; ``log`` is told of lines that were dropped, once there is room again."""
        # A daemon: the process must be able to end while the thread is blocked in a write.
        self._thread = threading.Thread(target=self._run, args=(log,), name="relay.log", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Take a line, or drop it if `MAX_LINES` wait already. Never blocks."""
        if self._lines.qsize() < MAX_LINES:
            self._lines.put(line)
        else:
            self._drop(1)

    def close(self) -> None:
        """Let the thread write what it has, but not for ever."""
        self._hurry.set()
        self._lines.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _drop(self, count: int) -> None:
        with self._counting:
            self._dropped.n += count

    def _run(self, log: structlog.typing.FilteringBoundLogger) -> None:
        told = self._dropped.n
        while self._open:
            if self._lines.empty():
                self._hurry.wait(GATHER_S)
            lines = self._take()
            try:
                for part in _in_writes(lines):
                    self._write(part)
            except OSError:  # the reader is gone or the disk is full, perhaps not for ever
                self._drop(len(lines))
                continue
            if (dropped := self._dropped.n) > told and self._lines.qsize() < MAX_LINES // 2:
                log.warning("log lines dropped", lines=dropped - told)
                told = dropped

    def _take(self) -> list[bytes]:
        """The lines of the next write, after waiting for the first."""
        taken = [self._lines.get()]
        while len(taken) < WRITE_LINES and not self._lines.empty():
            taken.append(self._lines.get())
        self._open = None not in taken
        return [line for line in taken if line is not None]

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process that shares the terminal made it non-blocking
                room = select.poll()
                room.register(self._descriptor, select.POLLOUT)
                room.poll()


class _Line:
    """What structlog calls with a finished line."""

    __slots__ = ("msg", "name")

    def __init__(self, name: str, put: Callable[[bytes], None]) -> None:
        self.name = name
        self.msg = put

    def __getattr__(self, level: str) -> Callable[[bytes], None]:
        return self.msg


class _Libraries(logging.Handler):
    """The standard library's logging (aiohttp, asyncio), as lines of ours."""

    def __init__(self, level: str) -> None:
        super().__init__()
        root = logging.getLogger()
        self._level_before = root.level
        # Below a warning, libraries tell of each request; that is ours to tell.
        root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
        root.addHandler(self)
        # aiohttp warns of each client that asks for a sub-protocol: strangers could fill the log.
        logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """One line, at the nearest standard level below the record's."""
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - values that do not fit their text, or cannot be printed, are the library's
            text = str(record.msg)
        level = min(record.levelno // 10 * 10, logging.CRITICAL)
        structlog.get_logger(record.name).log(level, text, exc_info=record.exc_info)

    def close(self) -> None:
        """Leave the root logger as it was."""
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level_before)
        super().close()


def _in_writes(lines: list[bytes]) -> Iterator[bytes]:
    """Whole lines, as many to a write as it may hold; a longer line is one of its own."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and size + len(line) > WRITE_BYTES:
            yield b"".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line)
    yield b"".join(part)


def _of_worker(number: int) -> structlog.typing.Processor:
    def add(_logger: Any, _level: str, event: _Event) -> _Event:
        return {"event": event.pop("event"), "worker": number, **event}

    return add


def _headed(logger: _Line, level: str, event: _Event) -> _Event:
    head = {"timestamp": datetime.now(UTC), "level": level, "logger": logger.name, "event": event.pop("event")}
    return {**head, **event}


def _json(_logger: _Line, _level: str, event: _Event) -> bytes:
    return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_TRACEBACK: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def _printable(_logger: _Line, _level: str, event: _Event) -> _Event:
    """Local time for a person, and no character that could move the cursor or forge a line."""
    event["timestamp"] = event["timestamp"].astimezone().strftime("%H:%M:%S")
    for key, value in event.items():
        if isinstance(value, str):
            control = _CONTROL_IN_TRACEBACK if key == "exception" else _CONTROL
            event[key] = control.sub(lambda match: repr(match[0])[1:-1], value)
    return event


def _console(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    # A traceback is text by then. structlog's default would show local variables, and with them secrets.
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


def _encoded(_logger: _Line, _level: str, text: str) -> bytes:
    return text.encode() + b"\n"
