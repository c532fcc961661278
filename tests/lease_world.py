"""A world of instances around one lane: the real scripts and the real keepers, with time and messages in our hands.

The scripts run in Lua 5.1, as the servers run them, against `FakeServer`, whose clock stands until it is moved.
Whatever is said travels through `World`, which loses, delays and repeats it as told, and asserts the invariants of the
protocol at every step.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lupa import lua51

from relay.lease import scripts
from relay.lease.keeper import Keeper, Need, State, Timing
from relay.lease.protocol import Enter, Leave, Renew, Yours, read_answer, read_push

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.lease.protocol import Command

LEASE, LANE, WAKE, NAME = "relay:{1:0xa}:lease", "relay:{1:0xa}:lane", "relay:wake:", "1:0xa"
SCRIPTS = {Enter: scripts.ENTER, Renew: scripts.RENEW, Leave: scripts.LEAVE}


class FakeServer:
    """What the scripts need of Redis. ``now`` is in seconds."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.values: dict[str, Any] = {}
        self.expiries: dict[str, float] = {}
        self.published: list[tuple[str, str]] = []
        self.subscribed: set[str] = set()
        self.full = False
        self._wrote = False
        self._lua = lua51.LuaRuntime(encoding="latin-1", unpack_returned_tuples=True)
        self._redis = self._lua.table_from({"call": self._call, "pcall": self._pcall})
        self._compiled = {
            kind: self._lua.eval(f"function(redis, KEYS, ARGV) {script.text} end") for kind, script in SCRIPTS.items()
        }

    def run(self, command: Command, *common: object) -> list[bytes]:
        """Run ``command``'s script as EVALSHA would; the answer as a client gets it."""
        self._wrote = False
        table = self._lua.table_from
        arguments = [str(argument) for argument in (*common, *command.arguments)]
        answer = self._compiled[type(command)](self._redis, table([LEASE, LANE]), table(arguments))
        return [str(word).encode() for word in answer.values()]

    def flush(self) -> None:
        """FLUSHALL."""
        self.values.clear()
        self.expiries.clear()

    @property
    def holder(self) -> tuple[str, int] | None:
        """Instance and fence."""
        self._expire()
        if (lease := self.values.get(LEASE)) is None:
            return None
        instance, fence = lease.split()
        return instance, int(fence)

    @property
    def lane(self) -> dict[str, str]:
        """The hash."""
        self._expire()
        return dict(self.values.get(LANE, {}))

    def _expire(self) -> None:
        for key in [key for key, at in self.expiries.items() if at <= self.now]:
            del self.expiries[key], self.values[key]

    def _call(self, name: str, *arguments: Any) -> Any:
        self._expire()
        if name in ("SET", "HSET") and self.full and not self._wrote:
            raise RuntimeError("OOM command not allowed when used memory > 'maxmemory'.")
        self._wrote = self._wrote or name in ("SET", "HSET", "DEL", "HDEL", "PEXPIRE")
        return getattr(self, f"_{name.lower()}")(*arguments)

    def _pcall(self, name: str, *arguments: Any) -> Any:
        try:
            return self._call(name, *arguments)
        except RuntimeError as error:
            return self._lua.table_from({"err": str(error)})

    def _time(self) -> Any:
        micros = round(self.now * 1e6)
        return self._lua.table_from([str(micros // 1_000_000), str(micros % 1_000_000)])

    def _get(self, key: str) -> Any:
        return self.values.get(key, False)

    def _set(self, key: str, value: str, _px: str, ms: Any) -> None:
        self.values[key] = value
        self.expiries[key] = self.now + float(ms) / 1000

    def _del(self, key: str) -> None:
        self.values.pop(key, None)
        self.expiries.pop(key, None)

    def _hgetall(self, key: str) -> Any:
        return self._lua.table_from(list(itertools.chain(*self.values.get(key, {}).items())))

    def _hset(self, key: str, *pairs: str) -> int:
        fields = self.values.setdefault(key, {})
        fields.update(zip(pairs[::2], pairs[1::2], strict=True))
        return 1

    def _hdel(self, key: str, field_: str) -> None:
        self.values.get(key, {}).pop(field_, None)

    def _pexpire(self, key: str, ms: Any) -> None:
        if key in self.values:
            self.expiries[key] = self.now + float(ms) / 1000

    def _pttl(self, key: str) -> int:
        return math.ceil((self.expiries[key] - self.now) * 1000)

    def _publish(self, channel: str, text: str) -> int:
        if channel not in self.subscribed:
            return 0
        self.published.append((channel, text))
        return 1


@dataclass(eq=False)
class Ticket:
    """A submission at one instance."""

    nonce: int
    arrived: float


@dataclass(eq=False)
class Instance:
    """One process: a keeper, its lane's tickets, and what travels between it and the server."""

    name: str
    timing: Timing
    keeper: Keeper
    tickets: list[Ticket] = field(default_factory=list)
    known: int = 0
    turn: Ticket | None = None
    commands: deque[Command] = field(default_factory=deque)
    answers: deque[tuple[Command, list[bytes]]] = field(default_factory=deque)
    pushes: deque[str] = field(default_factory=deque)
    late: list[Command] = field(default_factory=list)
    adopted: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Arrival:
    """What the node saw."""

    instance: str
    nonce: int
    taken: bool


class World:
    """Everything around one lane. Moves only when told. ``leases``: the lengths that instances count on, in turn."""

    def __init__(self, count: int = 2, leases: Sequence[float] = (1.0,)) -> None:
        self.timing = Timing(lease_s=leases[0], window_s=0.4, poll_s=0.3)
        self._leases = itertools.cycle(leases)
        self.server = FakeServer()
        self._names = itertools.count()
        self._numbers = itertools.count(1)
        self.instances = [self.new_instance() for _ in range(count)]
        self.node_next = 0
        self.node: list[Arrival] = []
        self.fences: list[int] = []
        self.over_gaps = 0
        self.flushed = False

    @property
    def now(self) -> float:
        """One clock for all; pauses are instances that are not asked to act."""
        return self.server.now

    def new_instance(self) -> Instance:
        """A process starts."""
        name = f"i{next(self._names)}"
        self.server.subscribed.add(WAKE + name)
        timing = replace(self.timing, lease_s=next(self._leases))
        return Instance(name, timing, Keeper(timing, self._numbers, lambda: 0.5))

    # What instances do.

    def arrive(self, instance: Instance, nonce: int) -> None:
        """A submission comes."""
        instance.tickets.append(Ticket(nonce, self.now))
        instance.tickets.sort(key=lambda ticket: ticket.nonce)

    def act(self, instance: Instance) -> None:
        """What a running instance does at once: see to its lane, begin a turn, say what is to be said."""
        self._require(instance)
        if instance.turn is None and instance.tickets:
            head = instance.tickets[0]
            if instance.keeper.may_begin(head.nonce, self.now):
                instance.turn = instance.tickets.pop(0)
                instance.keeper.begin_turn()
        if (command := instance.keeper.command(self.now)) is not None:
            instance.commands.append(command)

    def _require(self, instance: Instance) -> None:
        keeper = instance.keeper
        instance.known = max(instance.known, keeper.heard)
        if not instance.tickets:
            keeper.require(keeper.need if instance.turn else None, instance.known)
            return
        head = instance.tickets[0]
        gap = head.nonce > instance.known and self.now >= head.arrived + self.timing.window_s
        if gap:
            instance.known = max(instance.known, self.node_next)  # asked once more
            gap = head.nonce > instance.known
        keeper.require(Need(head.nonce, gap), instance.known)

    def send(self, instance: Instance) -> None:
        """The turn's bytes go out, if the check in the same breath allows it; the node answers at once."""
        assert instance.turn is not None
        ticket, instance.turn = instance.turn, None
        if not instance.keeper.may_send(self.now):
            self.arrive(instance, ticket.nonce)
        else:
            self.assert_owners()
            taken = ticket.nonce == self.node_next
            self.node.append(Arrival(instance.name, ticket.nonce, taken))
            if taken:
                self.node_next += 1
            instance.known = self.node_next if not taken else max(instance.known, ticket.nonce + 1)
        instance.keeper.end_turn()
        self.act(instance)

    # What happens to what was said.

    def serve(self, instance: Instance) -> None:
        """The server gets the next command."""
        command = instance.commands.popleft()
        instance.answers.append((command, self.execute(instance, command)))

    def execute(self, instance: Instance, command: Command) -> list[bytes]:
        """Run it, and look at what it did."""
        before, holder = self.server.lane, self.server.holder
        timing = instance.timing
        common = (
            WAKE, NAME, instance.name, command.registration, round(timing.lease_s * 1000), round(timing.poll_s * 1e6),
            round(timing.window_s * 1e6), 0,
        )  # fmt: skip
        words = self.server.run(command, *common)
        self._assert_server(instance, command, words, before, holder)
        self._deliver_published()
        return words

    def hear(self, instance: Instance) -> None:
        """The next answer comes."""
        command, words = instance.answers.popleft()
        answer = read_answer(words)
        if isinstance(answer, Yours) and answer.over_gap:
            self.over_gaps += 1
        self._watch(instance, lambda: instance.keeper.answered(command, answer, self.now))

    def push(self, instance: Instance) -> None:
        """The next pushed message comes."""
        read = read_push(instance.pushes.popleft().encode())
        assert read is not None
        self._watch(instance, lambda: instance.keeper.pushed(read[1], self.now))

    def _watch(self, instance: Instance, change: Callable[[], None]) -> None:
        was = instance.keeper.state, instance.keeper.fence
        change()
        keeper = instance.keeper
        if keeper.state is State.HOLDING and was != (State.HOLDING, keeper.fence):
            assert keeper.fence not in instance.adopted, "a grant was adopted twice"
            instance.adopted.add(keeper.fence)

    def _deliver_published(self) -> None:
        for channel, text in self.server.published:
            for instance in self.instances:
                if channel == WAKE + instance.name:
                    instance.pushes.append(text)
        self.server.published.clear()

    def lose(self, instance: Instance, *, executed: bool) -> None:
        """The connection fails, and so does the second try: the server counts as gone, then it is back.

        What was in flight may still be executed later (``executed``: it was already).
        """
        if instance.commands:
            command = instance.commands.popleft()
            if executed:
                self.execute(instance, command)
            else:
                instance.late.append(command)
        instance.answers.clear()
        instance.keeper.suspend()

    def repeat(self, instance: Instance) -> None:
        """The answer is lost, and the same command is sent again on a fresh connection."""
        command, _ = instance.answers.popleft()
        instance.commands.appendleft(command)
        instance.keeper.doubt()

    def execute_late(self, instance: Instance) -> None:
        """A command that was given up long ago reaches the server."""
        self.execute(instance, instance.late.pop())

    def crash(self, index: int) -> None:
        """SIGKILL, and a new process in its place; its clients send again."""
        gone = self.instances[index]
        self.server.subscribed.discard(WAKE + gone.name)
        fresh = self.instances[index] = self.new_instance()
        for ticket in (*gone.tickets, *([gone.turn] if gone.turn else [])):
            self.arrive(fresh, ticket.nonce)

    def settle(self, seconds: float, step: float = 0.01) -> None:
        """No more faults: everything said arrives, everybody runs, time passes."""
        end = self.now + seconds
        while self.now < end:
            for _ in range(4):
                for instance in self.instances:
                    self.act(instance)
                    while instance.commands:
                        self.serve(instance)
                    while instance.answers:
                        self.hear(instance)
                    while instance.pushes:
                        self.push(instance)
                    if instance.turn is not None:
                        self.send(instance)
            self.server.now += step

    # What must hold.

    def assert_owners(self) -> None:
        """Whoever may send owns the lease at the server."""
        for instance in self.instances:
            if instance.keeper.may_send(self.now) and not self.flushed:
                assert self.server.holder == (instance.name, instance.keeper.fence), f"{instance.name} owns nothing"

    def _assert_server(
        self,
        instance: Instance,
        command: Command,
        words: list[bytes],
        before: dict[str, str],
        holder: tuple[str, int] | None,
    ) -> None:
        after = self.server.holder
        if after is not None and after != holder:
            assert all(after[1] > fence for fence in self.fences), "a fence was given twice, or went back"
            self.fences.append(after[1])
        if before.get("n") != self.server.lane.get("n") and isinstance(command, Leave):
            newest = int(before.get("f", 0)) <= command.fence or (holder is not None and holder[0] == instance.name)
            assert newest, "n was written under an old fence"
        if words[0] == b"yours" and words[3] == b"1":
            assert isinstance(command, Enter)
            assert not any(head < command.head for head in self._fresh(before, instance)), "a gap passed a lower waiter"
        assert self.server.values.keys() <= self.server.expiries.keys(), "a key without an expiry"

    def _fresh(self, lane: dict[str, str], but: Instance) -> list[int]:
        """The heads of those who wait, as far as they were heard of lately."""
        heads = []
        for name, place in lane.items():
            if name.startswith("w:") and name != f"w:{but.name}":
                _, at, head, *_ = map(int, place.split())
                if head >= 0 and round(self.now * 1e6) - at < round(2.5e6 * self.timing.poll_s):
                    heads.append(head)
        return heads
