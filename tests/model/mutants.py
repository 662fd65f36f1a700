"""Rules of storage broken on purpose, one at a time, as patches of the production code.

A mutant that the model does not catch means that the model is too tame. `MUTANTS` has a patch and
the number of seeds within which it must be caught; the names are those of the design's own model
where it has the same rule. `python -m model mutants N` runs them all.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from fakes.disk import FakeFile
from model.world import FINDINGS, run

from dmq.storage import cleaner, items, journal, recovery, replay
from dmq.storage.cleaner import Cleaner, FlushJob
from dmq.storage.image import Image
from dmq.storage.journal import Journal
from dmq.storage.log import LOGS, Log
from dmq.storage.restore import Restorer
from dmq.storage.store import Store
from dmq.storage.turn import Turn

Patch = Callable[[], AbstractContextManager[Any]]


def _method(owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """Replace a function by what `make` builds from it."""
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def _all(*patches: Patch) -> Patch:
    @contextmanager
    def together() -> Iterator[None]:
        with ExitStack() as stack:
            for one in patches:
                stack.enter_context(one())
            yield

    return together


class _Eager(list[Any]):
    """Afterwork that does not wait."""

    def append(self, work: Any) -> None:
        work()


def _trust_tail(original: Any) -> Any:
    def restore_all(self: Restorer, images: list[Image]) -> Any:
        for found in images:
            found.was_async = True
        return original(self, images)

    return restore_all


def _early(original: Any) -> Any:
    def init(self: Turn, now: int) -> None:
        original(self, now)
        self.after = _Eager()

    return init


def _any_number(original: Any) -> Any:
    def read_header(buf: Any, position: int, number: int, salt: int) -> Any:
        if position + journal.HEADER_SIZE > len(buf):
            return None
        written = int.from_bytes(bytes(buf[position + 8 : position + 12]), "big")
        found = original(buf, position, written, salt)
        return None if found is None else (found[0]._replace(number=number), found[1])

    return read_header


class _NoNumber:
    """A seed that leaves the file number out."""

    @staticmethod
    def pack(_number: int, seq: int) -> bytes:
        return seq.to_bytes(8, "big")


def _same_uid(original: Any) -> Any:
    def create(self: Store, *args: Any, **kwargs: Any) -> Log:
        free = min(set(range(1, 50)) - self.logs.keys())
        self._next_uid = free
        return original(self, *args, **kwargs)

    return create


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def _only_active(original: Any) -> Any:
    def collect(job: FlushJob, log: Log) -> None:
        active = log.segments_list[-1]
        for segment in [s for s in log.unsynced if s is not active]:
            del log.unsynced[segment]
        original(job, log)

    return collect


def _collect_nothing(_original: Any) -> Any:
    def collect(_job: FlushJob, log: Log) -> None:
        log.unsynced.clear()
        log.directory_changed = False

    return collect


def _as_of_now(original: Any) -> Any:
    def begin_small(self: Store, turn: Turn) -> None:
        later = self._journal.seq + 1
        changed = []
        for note in self._cleaner.notes:
            (item,) = items.decode(note.raw, 0, len(note.raw))
            encode = {
                items.State: items.encode_state,
                items.Flushed: items.encode_flushed,
                items.Open: items.encode_open,
            }[type(item)]
            raw = encode(item._replace(as_of=later))
            changed.append(note._replace(as_of=later, raw=raw))
        self._cleaner.notes = changed
        original(self, turn)

    return begin_small


def _from_the_first(original: Any) -> Any:
    def read_records(file: Any, number: int, salt: int, position: int = 0) -> Any:
        for place, body in original(file, number, salt, position):
            yield place._replace(oldest=1), body

    return read_records


def _note_at_once(original: Any) -> Any:
    def plan(self: Cleaner, *args: Any) -> Any:
        job = original(self, *args)
        if job is not None:
            self.notes = [n for n in job.notes if cleaner.is_current(n)]
            job.notes = []
        return job

    def done(self: Cleaner, job: FlushJob) -> None:
        self._running = None

    return plan, done


def _note_before_sync() -> AbstractContextManager[Any]:
    plan, done = _note_at_once(Cleaner.plan)
    return _all(
        lambda: patch.object(Cleaner, "plan", plan), lambda: patch.object(Cleaner, "done", done)
    )()


def _forget_early(original: Any) -> Any:
    def drop(self: Store, log: Log) -> None:
        original(self, log)
        self._journal.forget(log.uid)
        self._journal.release()

    return drop


def _reuse_at_once(original: Any) -> Any:
    def release(self: Journal) -> None:
        original(self)
        self.spares += [journal.file_name(file.number) for file in self._freed]
        self._freed.clear()

    return release


def _cut_always(original: Any) -> Any:
    def apply_all(self: Image, told: Any) -> None:
        cuts = [event.item for event in told.events if isinstance(event.item, items.Cut)]
        original(self, told)
        for item in cuts:
            if self.state is not None and item.position.offset < self.end_offset:
                self._cut(item)

    return apply_all


def _replay_all(original: Any) -> Any:
    def apply_all(self: Image, told: Any) -> None:
        original(self, told)
        self.pending = [batch for batch in told.batches if batch[1] in self.segments]

    return apply_all


def _ignore_where(original: Any) -> Any:
    def noted_state(self: Journal, uid: int, as_of: int, file: Any) -> None:
        self.forget(uid)
        needed = next((f for f in self.files if f.last_seq > as_of), self.files[-1])
        needed.needed_by[uid] = None
        self._needs[uid] = needed

    return noted_state


def _keep_stale(original: Any) -> Any:
    def let_go(self: Restorer, image: Any, directory: str, name: str) -> None:
        return None

    return let_go


def _journal_order(original: Any) -> Any:
    def event_of(item: Any, order: int, number: int) -> Any:
        return original(item, order, number)._replace(order=order)

    return event_of


def _no_tail_sync(original: Any) -> Any:
    def restore_all(files: Any, found: Any) -> Any:
        with patch.object(type(files), "sync_dir", _nothing):
            for file in found.files:
                file.file = _Unsynced(file.file)
            try:
                return original(files, found)
            finally:
                for file in found.files:
                    file.file = file.file.real

    return restore_all


class _Unsynced:
    """A file whose sync does nothing."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def sync(self) -> None:
        return


def _swap_by_base(original: Any) -> Any:
    def finish(self: Restorer, found: Image, directory: str, sizes: dict[str, int]) -> None:
        for item in found.swaps:
            stale = f"{item.bases[0]:020d}.swap"
            if stale in sizes:
                self._files.rename(f"{directory}/{stale}", f"{directory}/{stale[:20]}.log")
                sizes[f"{stale[:20]}.log"] = sizes.pop(stale)
        original(self, found, directory, sizes)

    return finish


def _not_restated(original: Any) -> Any:
    def finish(self: Restorer, found: Image, damage: Any) -> Any:
        log = original(self, found, damage)
        log.must_restate = False
        return log

    return finish


def _flushed_at_once(original: Any) -> Any:
    def take(self: Cleaner, job: FlushJob, log: Log, **kwargs: Any) -> None:
        original(self, job, log, **kwargs)
        log.flushed_base = log.segments_list[-1].base

    return take


def _floor_of_staged(_original: Any) -> Any:
    def move_stable(self: Log) -> bool:
        stable = self.marks.floor(self._begun.end, self._staged_end, self.log_start)
        if stable is None or stable == self.stable_end:
            return False
        self.stable_end = stable
        return True

    return move_stable


def _shown_early(original: Any) -> Any:
    def put(self: Log, turn: Turn, segment: Any, parts: Any, size: int) -> None:
        original(self, turn, segment, parts, size)
        self._is_late = False
        segment.readable = size

    return put


def _promised_early(original: Any) -> Any:
    def begin(self: Log, turn: Turn) -> None:
        original(self, turn)
        if self._is_late and self.is_async:
            self._move_stable()
            turn.stable.append(self)

    return begin


def _keeps(directory: str) -> Any:
    def make(original: Any) -> Any:
        def forget_cache(self: FakeFile) -> None:
            if not self.name.startswith(f"{directory}/"):
                original(self)

        return forget_cache

    return make


MUTANTS: dict[str, tuple[Patch, int]] = {
    "trust_tail": (_method(Restorer, "restore", _trust_tail), 20),
    "early_cut": (_method(Turn, "__init__", _early), 20),
    "no_file_number": (
        _all(
            _method(journal, "read_header", _any_number),
            lambda: patch.object(journal, "_SEED", _NoNumber),
        ),
        100,
    ),
    "flush_without_sync": (_method(FlushJob, "run", lambda _: _nothing), 20),
    "retire_unflushed": (_method(cleaner, "collect", _collect_nothing), 20),
    "cut_not_recorded": (lambda: patch.object(items, "encode_cut", lambda _: b""), 20),
    "uid_reused": (_method(Store, "create", _same_uid), 60),
    "no_dirsync": (_method(FlushJob, "_sync_directory", lambda _: _nothing), 40),
    "only_active_segment": (_method(cleaner, "collect", _only_active), 40),
    "as_of_now": (_method(Store, "_begin_small", _as_of_now), 40),
    "no_low_water": (_method(journal, "read_records", _from_the_first), 40),
    "note_before_sync": (_note_before_sync, 20),
    "retire_on_undurable": (
        _all(_method(Store, "drop", _forget_early), _method(Journal, "release", _reuse_at_once)),
        200,
    ),
    "stale_segments": (_method(Restorer, "_let_go", _keep_stale), 20),
    "cut_always": (_method(Image, "apply_all", _cut_always), 60),
    "replay_all": (_method(Image, "apply_all", _replay_all), 250),
    "state_in_old_file": (_method(Journal, "noted_state", _ignore_where), 200),
    # Rules that this implementation has beyond the design's model.
    "note_in_journal_order": (_method(replay, "event_of", _journal_order), 40),
    "act_before_tail_sync": (_method(recovery, "_restore", _no_tail_sync), 250),
    "promise_what_is_staged_again": (_method(Log, "_move_stable", _floor_of_staged), 100),
    "late_write_forgotten": (_method(Turn, "_write_late", lambda _: _nothing), 40),
    "late_write_shown_early": (_method(Log, "_put", _shown_early), 20),
    "late_write_promised_early": (_method(Log, "begin", _promised_early), 100),
    "late_write_not_reserved": (
        _method(Log, "_is_reserved", lambda _: lambda *_args: True),
        100,
    ),
    "cache_of_journal_stays": (_method(FakeFile, "forget_cache", _keeps(journal.DIRECTORY)), 20),
    "cache_of_logs_stays": (_method(FakeFile, "forget_cache", _keeps(LOGS)), 250),
    "async_not_restated": (_method(Restorer, "_finish", _not_restated), 60),
    "swap_before_flush_is_noted": (_method(Cleaner, "_take", _flushed_at_once), 250),
    "swap_by_base": (_method(Restorer, "_finish_swaps", _swap_by_base), 150),
}


WORLDS: dict[str, dict[str, Any]] = {
    "retire_on_undurable": {"file_bytes": 1024},
    "swap_before_flush_is_noted": {"swap_rate": 0.4},
    "swap_by_base": {"swap_rate": 0.4},
    "cache_of_logs_stays": {"failing_rate": 0.9},
}
"""Mutants that show soon only where the journal rolls, compaction runs, or syncs fail, all the time."""


def caught_after(name: str, count: int) -> tuple[int, str] | None:
    """The number of seeds after which the model caught this mutant, and how; None if not."""
    world = WORLDS.get(name, {})
    with MUTANTS[name][0]():
        for seed in range(count):
            try:
                run(seed, **world)
            except FINDINGS as finding:
                return seed + 1, repr(finding)
    return None
