"""After a stop, clean or not: what the journal says is read, judged, and made true in the files.

    replay.py    read the files down to the oldest that the newest record needs; torn or rotten
    image.py     per log: newest STATE and what follows it
    restore.py   cut, remove and write segment files, after the journal's tail is durable
    here         the order of it; unknown files to lost+found; the journal's writer set up again

Takes no decision of its own: no retention, no roll. Idempotent: a crash in here starts again.
Called by `Store.open` only.
"""

import gc
from dataclasses import dataclass, field, replace
from typing import Protocol

from dmq.errors import CorruptError, StorageError
from dmq.storage import distrust, items, journal, meta
from dmq.storage.files import Files
from dmq.storage.image import Image, Told
from dmq.storage.journal import Journal
from dmq.storage.log import LOGS
from dmq.storage.meta import Meta
from dmq.storage.quarantine import DIRECTORY as QUARANTINE
from dmq.storage.quarantine import LOST, move
from dmq.storage.replay import Replay, Report, read_journal
from dmq.storage.restore import RecoveredLog, Restorer, adopt_clean
from dmq.types import NIL_UUID


class Sizes(Protocol):
    """The settings that recovery needs."""

    @property
    def journal_bytes(self) -> int: ...
    @property
    def journal_file_bytes(self) -> int: ...


@dataclass(slots=True)
class Recovered:
    """Everything that a store needs to go on."""

    meta: Meta
    journal: Journal
    logs: list[RecoveredLog]
    next_uid: int
    report: Report
    old_journal: list[str] = field(default_factory=list)
    """Of a directory that changed its name: to be put aside when the new one is durable."""


def format_directory(files: Files) -> Meta:
    """Make an empty directory ours. Raises CorruptError if it is not empty."""
    for name in (journal.DIRECTORY, LOGS):
        if files.list(name):
            raise CorruptError(
                f"there is no meta file, which says whose directory this is, but the folder {name} has "
                "files. Nothing was changed. Put the meta file back, or give an empty directory"
            )
    made = Meta(files.new_id())
    meta.save(files, made)
    return made


def recover(
    files: Files, sizes: Sizes, directory: Meta, *, accept_rotten: bool = False
) -> Recovered:
    """Read the journal, restore the files. Raises CorruptError if it is rotten."""
    # Hundreds of thousands of objects and not one cycle: collections would only look at them.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _recover(files, sizes, directory, accept_rotten)
    finally:
        if was_enabled:
            gc.enable()


def _recover(files: Files, sizes: Sizes, directory: Meta, accept_rotten: bool) -> Recovered:
    for name in (journal.DIRECTORY, LOGS, QUARANTINE):
        files.make_dir(name)  # The last one now: a full disk must be able to drop logs.
    files.sync_dir(".")
    salt = journal.salt_of(directory.directory_id)
    replay = read_journal(files, salt)
    report = replay.report
    if has_lost_all(directory, report):
        report.is_new = False
        report.rotten = "not one record of it is there, and this directory was a broker's"
    if report.rotten is not None and not accept_rotten:
        raise CorruptError(_refusal(report.rotten, directory))
    opened = replay.broker.item if replay.broker else None
    if isinstance(opened, items.Open):
        is_same_boot = opened.boot_id == files.boot_id() != NIL_UUID
        report.is_same_boot = is_same_boot and not distrust.is_noted(files)
    logs = _restore(files, replay)
    if not report.is_clean:
        _put_aside(files, replay, {log.state.uid for log in logs})
    report.logs = len(logs)
    if report.rotten is not None:
        return _renamed(files, sizes, directory, replay, logs)
    writer = _journal(files, sizes, salt, replay)
    numbers = {file.number: file for file in writer.files}
    for log in logs:
        writer.noted_state(log.state.uid, log.state_time, numbers[log.state_number])
    if replay.broker is not None:
        writer.noted_state(0, replay.broker.seq, numbers[replay.broker.number])
    return Recovered(directory, writer, logs, replay.next_uid, report)


def has_lost_all(directory: Meta, report: Report) -> bool:
    """A directory gets its number when it is open, and its journal has a record then: without one,
    whatever it promised is forgotten."""
    return report.is_new and directory.node_id is not None


def _refusal(rotten: str, directory: Meta) -> str:
    """What can be done, for people. The id makes it a choice for once: it is another one then."""
    return (
        f"the journal lost what it promised: {rotten}. Nothing was changed. If there is a better copy of "
        "this directory, use that. Else start once with `dmq serve --accept-rotten "
        f"{directory.directory_id}`: the broker keeps what is left, comes back under a new directory id "
        "and copies what is missing from the others. What no other broker has, everything if it is "
        "alone, may lack acknowledged records then, and such partitions wait for `dmq partition "
        "recover`. Or a broker of a cluster starts anew with an empty directory and its number (--join, "
        "--node-id)"
    )


def _images(replay: Replay) -> list[Image]:
    images = []
    for uid, told in _live(replay).items():
        lost = _first_lost(replay, told)
        image = Image(uid, may_lack=lost is not None)
        image.apply_all(told if lost is None else told.before(lost))
        if image.state is not None:
            if lost is not None:
                image.doubt()
            images.append(image)
    return images


def _first_lost(replay: Replay, told: Told) -> int | None:
    """The first missing record that may have spoken of this log after its newest STATE.

    Only a STATE says all: a FLUSHED knows nothing of marks, and they may be what is missing.
    """
    states = [e.seq for e in told.events if isinstance(e.item, items.State)]
    newest = max(states, default=-1)
    lost = [max(first, newest + 1) for first, last in replay.gaps if last > newest]
    return min(lost, default=None)


def _live(replay: Replay) -> dict[int, Told]:
    return {uid: told for uid, told in replay.logs.items() if uid not in replay.dropped}


def _restore(files: Files, replay: Replay) -> list[RecoveredLog]:
    report = replay.report
    if replay.files:
        # What was read may be in the page cache only, the name of its file too, if the sync of a former
        # life failed: it must not vanish after we acted on it, nor take along what we add to it.
        files.sync_dir(journal.DIRECTORY)
        replay.files[-1].file.sync()
    if report.is_clean and report.rotten is None:
        return [adopt_clean(told.events[-1]) for told in _live(replay).values()]
    images = _images(replay)
    restorer = Restorer(files, replay.files, report)
    if report.rotten is not None:
        for image in images:
            image.was_async = True  # Old bytes are kept, as far as they make sense.
    return restorer.restore(images)


def _renamed(
    files: Files, sizes: Sizes, directory: Meta, replay: Replay, logs: list[RecoveredLog]
) -> Recovered:
    """Who may have forgotten changes its name; the store restates all under the new one."""
    for log in logs:
        log.must_restate = log.is_forgotten = True
    renamed = replace(directory, directory_id=files.new_id())
    writer = _journal(files, sizes, journal.salt_of(renamed.directory_id), replay)
    old = [journal.file_name(file.number) for file in replay.files]
    writer.files = []
    return Recovered(renamed, writer, logs, replay.next_uid, replay.report, old)


def put_journal_aside(files: Files, found: Recovered) -> None:
    """Keep a rotten journal for people to look at."""
    for name in found.old_journal:
        moved = move(files, name, LOST, f"journal-{name.rpartition('/')[2]}")
        found.report.lost_found.append(moved)


def _put_aside(files: Files, replay: Replay, known: set[int]) -> None:
    """Folders that no live log owns: dropped ones to quarantine, the rest to lost+found."""
    moved = False
    for name in files.list(LOGS):
        if name.isdigit() and int(name) in known:
            continue
        is_dropped = name.isdigit() and int(name) in replay.dropped
        target = move(files, f"{LOGS}/{name}", QUARANTINE if is_dropped else LOST, name)
        moved = True
        if not is_dropped:
            replay.report.lost_found.append(target)
    if moved:
        # A uid that never became durable may be given again: its old folder must not come back.
        for name in (LOGS, QUARANTINE, LOST):
            if files.exists(name):
                files.sync_dir(name)
        files.sync_dir(".")


def _spares(files: Files, sizes: Sizes, replay: Replay) -> list[str]:
    """Journal files that nobody needs; those without all their blocks are made anew."""
    lengths = files.sizes(journal.DIRECTORY)
    kept = []
    for name in replay.spares:
        if lengths[name.rpartition("/")[2]] < sizes.journal_file_bytes:
            files.unlink(name)
        else:
            kept.append(name)
    return kept


def _next_number(files: Files, salt: int, replay: Replay) -> int:
    """One that no file ever had, as far as bytes tell. A loss of power can undo a file's last name and
    keep the record that it began with: under that number again, the record would count."""
    number = replay.next_number
    for name in replay.spares:
        file = files.open(name)
        file.forget_cache()
        number = max(number, journal.first_number(file, salt) + 1)
    return number


def _journal(files: Files, sizes: Sizes, salt: int, replay: Replay) -> Journal:
    if sizes.journal_bytes < 4 * sizes.journal_file_bytes:
        raise StorageError("the journal must have room for four of its files")
    writer = Journal(files, sizes.journal_file_bytes, sizes.journal_bytes, salt)
    writer.seq = writer.durable_seq = replay.report.last_seq
    writer.next_number = _next_number(files, salt, replay)
    writer.files = replay.files
    writer.spares = _spares(files, sizes, replay)
    if replay.report.is_clean and replay.last is not None:
        writer.position = replay.last.end
    elif writer.files and replay.report.rotten is None:
        writer.roll()  # Never behind a torn record.
    return writer
