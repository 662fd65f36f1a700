"""A log against a list: append, mark, cut, trim, roll, flush, compact nothing, crash, reopen.

The model test has the oracle for crashes in the middle of things; here every step ends in a whole
turn, so the log must at all times be exactly the list, by every way of reading it.
"""

import random

from fakes.batches import VOTERS, open_store, run_jobs, turn
from fakes.disk import FakeDisk
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dmq.records import Record, build_batch, read_header, scan
from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store
from dmq.types import Mark, Position


class LogAgainstList(RuleBasedStateMachine):
    """`batches` is the log as a list of (base, last, greatest timestamp, bytes)."""

    disk: FakeDisk
    store: Store
    log: Log

    @initialize(
        segment_bytes=st.sampled_from((150, 600, 5000)),
        interval=st.sampled_from((1, 100, 4096)),
        seed=st.integers(0, 1000),
    )
    def begin(self, segment_bytes: int, interval: int, seed: int) -> None:
        self.disk = FakeDisk(random.Random(seed))
        self.store = open_store(self.disk)
        self.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=interval)
        topic_id = self.disk.new_id()
        self.log = self.store.create(topic_id, 0, voters=VOTERS, settings=self.settings)
        turn(self.store)
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.marks = [self.log.marks.last]
        self.start = 0
        self.end = 0

    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 120)), min_size=1, max_size=4),
        timestamp=st.integers(0, 500),
    )
    def append(self, sizes: list[tuple[int, int]], timestamp: int) -> None:
        raw = b""
        for count, size in sizes:
            records = [
                Record(self.end + n, timestamp + n * 7 % 5, None, b"x" * size) for n in range(count)
            ]
            one = bytes(build_batch(records, leader_epoch=self.marks[-1].epoch))
            newest = max(record.timestamp for record in records)
            self.batches.append((self.end, self.end + count - 1, newest, one))
            self.end += count
            raw += one
        self.log.append(raw)
        turn(self.store)

    @rule()
    def mark(self) -> None:
        made = Mark(self.marks[-1].epoch + 1, 0, self.end, VOTERS, self.start)
        self.log.add_mark(made)
        self.marks.append(made)
        turn(self.store)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        places = [b[0] for b in self.batches if b[0] >= self.start]
        if not places:
            return
        offset = data.draw(st.sampled_from(places))
        made = [m for m in self.marks if m.offset <= offset][-1]
        self.log.cut(Position(made.epoch, made.change, offset))
        self.batches = [b for b in self.batches if b[0] < offset]
        self.marks = [m for m in self.marks if m[:2] <= made[:2]]
        self.end = offset
        turn(self.store)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start + 1, self.end))
        self.log.trim(self.start, self.log.stable_end)
        self.marks = [*self.log.marks]
        turn(self.store)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.store.request_flush(self.log)
        run_jobs(self.store)

    @rule(how=st.sampled_from(("kill", "power", "close")))
    def restart(self, how: str) -> None:
        if how == "close":
            self.store.close(0)
        elif how == "kill":
            self.disk.kill()
        else:
            self.disk.power_cut()
        self.store = open_store(self.disk)
        (self.log,) = self.store.logs.values()
        self.log.configure(self.settings)

    @invariant()
    def ends_agree(self) -> None:
        assert self.log.end == self.log.stable_end
        assert self.log.end_offset == self.end
        assert self.log.log_start == self.start
        assert [*self.log.marks] == self.marks

    @invariant()
    def everything_reads_back(self) -> None:
        parts = self.log.read(self.start, 1 << 30, self.end)
        raw = b"".join(part.pread() for part in parts)
        assert raw == b"".join(b[3] for b in self._visible())

    @invariant()
    def every_offset_is_found(self) -> None:
        for base, last, _, raw in self._visible():
            for offset in {max(base, self.start), last}:
                (part, *_) = self.log.read(offset, 1, self.end)
                assert part.pread() == raw
            bounded = b"".join(p.pread() for p in self.log.read(self.start, 1 << 30, last + 1))
            assert [h for _, h in scan(bounded)][-1] == read_header(raw)

    @invariant()
    def timestamps_are_found(self) -> None:
        seen = self._visible()
        for timestamp in {0, 250, *(b[2] for b in seen)}:
            found = self.log.find_timestamp(timestamp, self.end)
            expected = next((b[0] for b in seen if b[2] >= timestamp), None)
            assert (found.base_offset if found else None) == expected

    def _visible(self) -> list[tuple[int, int, int, bytes]]:
        return [b for b in self.batches if b[1] >= self.start]


LogAgainstList.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, derandomize=True
)
TestLogAgainstList = LogAgainstList.TestCase
