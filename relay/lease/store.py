"""The server's side of the boundary: scripts in, answers out, and whether the server can be used at all.

Job: run scripts, several of one tick in one pipeline; own the client library (`troubles` reads its errors).
Rules
- A failed command is no proof: a process that was paused longer than the time-out finds its command failed although
  the answer has long arrived. It is tried once more on a fresh connection (every script may be run twice), and only
  then the server counts as gone. So whoever meets a failure waits at most two time-outs.
- Gone, everything is answered at once; a probe that writes (a read-only or full server answers PING) finds out when it
  is back.
- An error that concerns the keys of one lane (`Spoilt`) is that lane's alone: it says nothing about the server.
- A connection that had to be made anew may lead to another server: whoever holds something hears of it (``renewed``).
Must not know: lanes, leases, policies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import structlog
from redis import exceptions

from relay.config import masked
from relay.lease.scripts import PROBE
from relay.lease.troubles import Down, Spoilt, spoilt, trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster

    from relay.lease.places import Place
    from relay.lease.scripts import Script
    from relay.tasks import TaskOwner

MAX_IN_FLIGHT: Final = 8
MAX_PIPELINE: Final = 128
PROBE_S: Final = 0.5
PROBE_TTL_MS: Final = 5000

Result = list[bytes] | Down | Spoilt


class _Job:
    __slots__ = ("arguments", "done", "keys", "script")

    def __init__(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> None:
        self.script = script
        self.keys = keys
        self.arguments = arguments
        self.done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()


class Store:
    """One server. ``up`` says whether it can be used; ``trouble`` why not."""

    def __init__(
        self,
        place: Place,
        *,
        url: str,
        probe: tuple[str, str],
        timeout_s: float,
        owner: TaskOwner,
        count: Callable[[str], None],
    ) -> None:
        self._place = place
        self._client: Redis | RedisCluster = place.client()
        self._url = masked(url)
        self._probe_key, self._probe_channel = probe
        self._timeout_s = timeout_s
        self._owner = owner
        self._count = count
        self._jobs: deque[_Job] = deque()
        self._in_flight = 0
        self._flushing = False
        self._probing = False
        self.trouble: Down | None = Down("connection", "not tried yet")
        self.changed: Callable[[], None] = lambda: None
        self.renewed: Callable[[], None] = lambda: None
        self.sent = 0
        self._log = structlog.get_logger("relay.redis")

    def __repr__(self) -> str:
        return f"<store {self._url}: {'up' if self.up else self.trouble}, {self._in_flight} in flight>"

    @property
    def up(self) -> bool:
        """Can the server be used, as far as is known?"""
        return self.trouble is None

    async def start(self) -> None:
        """Find out whether the server is there. Takes at most two time-outs, and never fails: it may come later."""
        job = self._new_probe()
        end = await self._attempt([job])
        if isinstance(end[0], Down):
            end = await self._attempt_afresh([job])
        if isinstance(end[0], Down):
            self._go_down(end[0])
        else:
            self.trouble = None

    async def close(self) -> None:
        """Close every connection."""
        await self._place.close(self._client)

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> asyncio.Future[Result]:
        """Run a script. The future never fails and is never cancelled from outside."""
        job = _Job(script, keys, arguments)
        if self.trouble is not None:
            job.done.set_result(self.trouble)
            return job.done
        self._jobs.append(job)
        if not self._flushing and self._in_flight < MAX_IN_FLIGHT:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        return job.done

    def _flush(self) -> None:
        """What has come in this tick goes together. With enough under way, the next ones wait and go together too."""
        self._flushing = False
        if self._jobs and self._in_flight < MAX_IN_FLIGHT:
            jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), MAX_PIPELINE))]
            self._in_flight += 1
            self._owner.start("commands", self._carry(jobs))

    async def _carry(self, jobs: list[_Job]) -> None:
        try:
            results = await self._attempt(jobs)
            failed = [job for job, result in zip(jobs, results, strict=True) if isinstance(result, Down)]
            if failed and self.up:
                again = iter(await self._attempt_afresh(failed))
                results = [next(again) if isinstance(result, Down) else result for result in results]
        finally:
            self._in_flight -= 1
        if down := next((result for result in results if isinstance(result, Down)), None):
            self._go_down(down)
        for job, result in zip(jobs, results, strict=True):
            _finish(job, result)
        while self._jobs and self._in_flight < MAX_IN_FLIGHT:
            self._flush()

    async def _attempt_afresh(self, jobs: list[_Job]) -> list[Result]:
        if not self._place.clustered:
            await self._client.connection_pool.disconnect(inuse_connections=False)  # type: ignore[union-attr] # no cluster
        results = await self._attempt(jobs)
        if not any(isinstance(result, Down) for result in results):
            self.renewed()
        return results

    async def _attempt(self, jobs: list[_Job]) -> list[Result]:
        """One try, bounded in time."""
        try:
            async with asyncio.timeout(self._timeout_s):
                replies = await self._evalsha(jobs)
                lost = [n for n, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
                for number in lost:
                    replies[number] = await self._eval(jobs[number])
        except Exception as error:  # noqa: BLE001 - whatever the library raises, somebody waits for an answer
            return [self._down(error)] * len(jobs)
        return [self._failed(reply) if isinstance(reply, Exception) else reply for reply in replies]

    async def _evalsha(self, jobs: list[_Job]) -> list[Any]:
        if len(jobs) == 1:
            return [await self._evalsha_one(jobs[0])]
        if self._place.clustered:
            return list(await asyncio.gather(*map(self._evalsha_one, jobs)))
        self.sent += len(jobs)
        async with self._client.pipeline(transaction=False) as pipeline:
            for job in jobs:
                pipeline.execute_command("EVALSHA", job.script.sha, len(job.keys), *job.keys, *job.arguments)
            return list(await pipeline.execute(raise_on_error=False))

    async def _evalsha_one(self, job: _Job) -> Any:
        self.sent += 1
        try:
            return await self._client.evalsha(job.script.sha, len(job.keys), *job.keys, *job.arguments)
        except exceptions.ResponseError as error:
            return error

    async def _eval(self, job: _Job) -> Any:
        """The server has lost the script (restart, SCRIPT FLUSH): this brings it back."""
        self.sent += 1
        try:
            return await self._client.eval(job.script.text, len(job.keys), *job.keys, *job.arguments)
        except exceptions.ResponseError as error:
            return error

    def _failed(self, error: Exception) -> Down | Spoilt:
        down = self._down(error)
        return Spoilt(down.detail) if spoilt(error) else down

    def _down(self, error: Exception) -> Down:
        down = trouble(error, self._timeout_s)
        self._count(down.reason)
        return down

    # Gone, and back.

    def _go_down(self, down: Down) -> None:
        if self._probing:
            return
        self._probing = True
        self.trouble = down
        self._log.warning("redis is gone", url=self._url, reason=down.reason, detail=down.detail)
        while self._jobs:
            _finish(self._jobs.popleft(), down)
        self._owner.start("probe", self._probe_until_back())
        self.changed()

    async def _probe_until_back(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            result = (await self._attempt_afresh([self._new_probe()]))[0]
            if not isinstance(result, Down):
                break
            self.trouble = result
        self._probing = False
        self.trouble = None
        self._log.warning("redis is back", url=self._url)
        self.changed()

    def _new_probe(self) -> _Job:
        return _Job(PROBE, [self._probe_key], [self._probe_channel, PROBE_TTL_MS])


def _finish(job: _Job, result: Result) -> None:
    if not job.done.done():
        job.done.set_result(result)
