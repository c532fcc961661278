"""Log lines: what they hold, what they hide, and that nobody waits for them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson
import pytest
import structlog

from relay.config import Log
from relay.telemetry import logs as logs_room
from relay.telemetry.logs import MAX_LINES, WRITE_LINES, Logs
from relay.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def logging_to(
    stream: IO[Any], *, level: str = "info", style: str = "json", metrics: Metrics | None = None
) -> Iterator[Logs]:
    """The log of a process, on ``stream``, for as long as the block lasts."""
    settings = Log(level=level, format=style)  # type: ignore[arg-type]  # texts of a test
    running = Logs.start(settings, metrics or Metrics(), stream)
    try:
        yield running
    finally:
        running.close()


class Lines:
    """A file that takes lines, and what stands in it after the log is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.stream = path.open("wb")

    @property
    def text(self) -> str:
        return self._path.read_text("utf-8")

    @property
    def read(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self._path.read_bytes().splitlines()]


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    """Where the log of a test goes."""
    made = Lines(tmp_path / "log")
    yield made
    made.stream.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, IO[bytes]]]:
    """A real pipe: the descriptor to read from and the stream to write to."""
    read, write = os.pipe()
    with open(write, "wb", buffering=0) as stream:  # noqa: PTH123 - of a descriptor
        yield read, stream
        try:
            os.close(read)
        except OSError:
            return  # the test closed it


# Lines


def test_a_json_line_holds_time_level_room_event_and_values(lines: Lines) -> None:
    """One object a line, in this order, the time in UTC."""
    with logging_to(lines.stream):
        structlog.get_logger("relay.submit").info("submission", nonce=7, wait_ms=1.5, fence=None, ok=True)
    (line,) = lines.read
    assert list(line) == ["timestamp", "level", "logger", "event", "nonce", "wait_ms", "fence", "ok"]
    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "info", "logger": "relay.submit", "event": "submission", "nonce": 7, "wait_ms": 1.5,
                    "fence": None, "ok": True}  # fmt: skip


def test_lines_keep_their_order_and_are_all_written_at_the_end(lines: Lines) -> None:
    """`close` writes what still waits."""
    with logging_to(lines.stream):
        log = structlog.get_logger("relay")
        for number in range(3 * WRITE_LINES):
            log.info("line", number=number)
    assert [line["number"] for line in lines.read] == list(range(3 * WRITE_LINES))


@pytest.mark.parametrize(
    ("level", "written"),
    [("debug", ["d", "i", "w", "e"]), ("info", ["i", "w", "e"]), ("warning", ["w", "e"]), ("error", ["e"])],
)
def test_only_the_configured_level_and_above_is_written(lines: Lines, level: str, written: list[str]) -> None:
    """The level is a floor."""
    with logging_to(lines.stream, level=level):
        log = structlog.get_logger("relay")
        log.debug("d")
        log.info("i")
        log.warning("w")
        log.error("e")
    assert [line["event"] for line in lines.read] == written


def test_a_logger_made_before_the_start_follows_each_start(tmp_path: Path) -> None:
    """Rooms make theirs on import; the level and stream that count are the running log's."""
    log = structlog.get_logger("relay.room")
    first, second = Lines(tmp_path / "first"), Lines(tmp_path / "second")
    with logging_to(first.stream, level="error"):
        log.info("too low")
    with logging_to(second.stream):
        log.info("taken")
    assert (first.read, [line["event"] for line in second.read]) == ([], ["taken"])
    first.stream.close()
    second.stream.close()


def test_auto_is_json_where_nobody_looks(lines: Lines) -> None:
    """A file is no terminal."""
    with logging_to(lines.stream, style="auto"):
        structlog.get_logger("relay").info("x")
    assert lines.read[0]["event"] == "x"


def test_auto_is_console_on_a_terminal() -> None:
    """A person gets local time, colours and no JSON."""
    reader, terminal = os.openpty()
    with open(terminal, "wb", buffering=0) as stream, logging_to(stream, style="auto"):  # noqa: PTH123 - of a descriptor
        structlog.get_logger("relay.submit").info("submission", nonce=7)
        seen = b""
        while b"\n" not in seen:
            seen += os.read(reader, 4096)
    os.close(reader)
    assert b"submission" in seen
    assert b"\x1b[" in seen
    assert not seen.startswith(b"{")


def test_a_console_line_cannot_be_forged(lines: Lines) -> None:
    """Line feeds and escape sequences of strangers are shown, not obeyed."""
    with logging_to(lines.stream, style="console"):
        structlog.get_logger("relay").info("a\nb", node="x\r\n12:00:00 [error] forged \x1b[31m\x9b", nest=["\x1b"])
    assert lines.text.count("\n") == 1
    assert not {"\x1b", "\r", "\x9b"} & set(lines.text)
    assert "forged" in lines.text


def test_an_exception_is_shown_with_its_traceback(lines: Lines) -> None:
    """As one value of the line."""
    with logging_to(lines.stream):
        try:
            os.environ["NOT_THERE"]
        except KeyError:
            structlog.get_logger("relay").exception("broken")
    (line,) = lines.read
    assert line["level"] == "error"
    assert line["exception"].startswith("Traceback (most recent call last):")
    assert line["exception"].endswith("KeyError: 'NOT_THERE'")


@pytest.mark.parametrize("style", ["json", "console"])
def test_local_variables_are_not_shown_with_a_traceback(lines: Lines, style: str) -> None:
    """They hold transactions and keys."""

    def broken(password: str) -> None:
        raise ValueError(len(password))

    with logging_to(lines.stream, style=style):
        try:
            broken("Q" + "Q")
        except ValueError:
            structlog.get_logger("relay").exception("broken")
    assert "ValueError: 2" in lines.text
    assert "QQ" not in lines.text


def test_a_reported_fault_is_logged_and_counted(lines: Lines) -> None:
    """With the name of the part that broke."""
    metrics = Metrics()
    with logging_to(lines.stream, metrics=metrics) as running:
        running.report("lane.settle", RuntimeError("no such lane"))
    (line,) = lines.read
    assert (line["event"], line["where"], line["level"]) == ("fault", "lane.settle", "error")
    assert line["exception"].endswith("RuntimeError: no such lane")
    assert metrics.faults.cell().n == 1


# Libraries


def test_libraries_log_the_same_way(lines: Lines) -> None:
    """The standard library's logging, exceptions included, becomes lines of the same form."""
    with logging_to(lines.stream):
        try:
            os.close(-1)
        except OSError:
            logging.getLogger("aiohttp.server").exception("failed: %s", "https://u:Q@h/Q")
        logging.getLogger("odd").log(35, "between two levels")
    first, second = lines.read
    assert (first["logger"], first["level"], first["event"]) == (
        "aiohttp.server",
        "error",
        "failed: https://***@h/***",
    )
    assert first["exception"].endswith("OSError: [Errno 9] Bad file descriptor")
    assert (second["logger"], second["level"]) == ("odd", "warning")


def test_what_libraries_say_below_a_warning_is_left_out(lines: Lines) -> None:
    """Even where the relay's own level is lower."""
    with logging_to(lines.stream, level="debug"):
        logging.getLogger("aiohttp.access").info("GET /livez")
        logging.getLogger("asyncio").debug("Using selector")
    assert lines.read == []


def test_a_library_that_logs_wrongly_breaks_nothing(lines: Lines) -> None:
    """A text whose blanks do not fit its values is written as it is."""
    record = logging.LogRecord("aiohttp", logging.ERROR, __file__, 1, "%d left", ("x",), None)
    with logging_to(lines.stream) as running:
        running._libraries.handle(record)
    assert [line["event"] for line in lines.read] == ["%d left"]


def test_the_root_logger_is_given_back(lines: Lines) -> None:
    """After the end, nothing of ours is left in the standard library's logging."""
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with logging_to(lines.stream):
        assert (root.level, root.handlers) != before
    assert (root.level, root.handlers) == before


# A stdout that does not take lines


def test_a_worker_is_named(lines: Lines) -> None:
    """One of several processes says in each line which it is."""
    running = Logs.start(Log(format="json"), Metrics(), lines.stream, worker=3)
    structlog.get_logger("relay").info("something", why="x")
    running.close()
    (line,) = lines.read
    assert (line["worker"], line["event"], line["why"]) == (3, "something", "x")


def test_a_pipe_is_given_whole_lines_it_takes_at_once() -> None:
    """Processes that share a pipe do not cut into each other's lines, and a long line is a write of its own."""
    some = [b"%d" % number * size + b"\n" for number, size in enumerate((10, 4000, 80, 5000, 1, 1))]
    writes = list(logs_room._in_writes(some))
    assert b"".join(writes) == b"".join(some)
    assert all(len(one) <= logs_room.WRITE_BYTES or one in some for one in writes)
    assert all(one.endswith(b"\n") for one in writes)


def test_a_blocked_stdout_blocks_nobody_and_what_is_dropped_is_counted(pipe: tuple[int, IO[bytes]]) -> None:
    """Nobody reads the pipe: lines are dropped and counted; once somebody reads, the log says how many are missing."""
    read, stream = pipe
    metrics = Metrics()
    dropped = metrics.log_dropped.cell()
    with logging_to(stream, metrics=metrics):
        log = structlog.get_logger("relay").bind()
        sent = 0
        while dropped.n < 100:  # the pipe holds some 64 kB, the queue its lines
            log.info("line", number=sent)
            sent += 1
        assert sent > MAX_LINES
        missing, seen = dropped.n, b""
        while b"log lines dropped" not in seen or not seen.endswith(b"\n"):
            seen += os.read(read, 1 << 20)
    taken = [orjson.loads(line) for line in seen.splitlines()]
    numbers = [line["number"] for line in taken if line["event"] == "line"]
    assert numbers == sorted(numbers)
    assert len(numbers) == sent - missing
    assert sum(line.get("lines", 0) for line in taken) == missing == dropped.n


def test_the_end_does_not_wait_for_a_blocked_stdout(
    pipe: tuple[int, IO[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close` gives up after `CLOSE_S`; the thread ends once the pipe does."""
    read, stream = pipe
    monkeypatch.setattr(logs_room, "CLOSE_S", 0.01)
    metrics = Metrics()
    with logging_to(stream, metrics=metrics):
        log = structlog.get_logger("relay").bind()
        while not metrics.log_dropped.cell().n:
            log.info("line")
    (writer,) = (thread for thread in threading.enumerate() if thread.name == "relay.log")
    assert writer.is_alive()
    os.close(read)
    writer.join()


def test_a_process_can_end_while_its_stdout_is_blocked() -> None:
    """The thread in the middle of a write holds nothing that the interpreter needs to end."""
    script = (
        "import sys, structlog\n"
        "from relay.config import Log\n"
        "from relay.telemetry.logs import Logs\n"
        "from relay.telemetry.metrics import Metrics\n"
        "metrics = Metrics()\n"
        "logs = Logs.start(Log(), metrics, sys.stdout)\n"
        "log = structlog.get_logger('relay').bind()\n"
        "while not metrics.log_dropped.cell().n: log.info('line')\n"
        "logs.close()\n"
        "sys.exit(7)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    ) as process:
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 7


def test_lines_that_no_reader_can_get_are_counted(pipe: tuple[int, IO[bytes]]) -> None:
    """The reader of the pipe is gone: the relay goes on, and tells nobody of lines that nobody can read."""
    read, stream = pipe
    os.close(read)
    metrics = Metrics()
    sent = 0
    with logging_to(stream, metrics=metrics):
        log = structlog.get_logger("relay").bind()
        while metrics.log_dropped.cell().n < WRITE_LINES:
            log.info("line")
            sent += 1
    assert metrics.log_dropped.cell().n == sent


def test_a_stdout_that_is_non_blocking_gets_whole_lines(pipe: tuple[int, IO[bytes]]) -> None:
    """Another process on the same terminal can make it so; a full pipe then is waited for, not an error."""
    read, stream = pipe
    os.set_blocking(stream.fileno(), False)
    metrics = Metrics()
    seen = bytearray()

    def reader() -> None:
        while data := os.read(read, 1 << 16):
            seen.extend(data)

    with logging_to(stream, metrics=metrics):
        log = structlog.get_logger("relay").bind()
        for number in range(2000):
            log.info("line", number=number, filler="x" * 90)
        thread = threading.Thread(target=reader)
        thread.start()
    stream.close()
    thread.join()
    assert [orjson.loads(line)["number"] for line in bytes(seen).splitlines()] == list(range(2000))
    assert metrics.log_dropped.cell().n == 0
