"""Makes segment files what the journal says they are.

Segments below the first kept one and above the flush point's are removed, that one is cut to the
flush point, and the journal's bytes after it are written. A file that is shorter than its flush
point is damage: noted, kept, never cut. Files of an async log may have more than the journal
knows: they are read on for as long as crc, offset and epoch fit. A rotten journal may not know that a
complete file was compacted: one that is longer than it says is taken as it is, cut or put aside,
by what its batches say. Called by recovery.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from crc32c import crc32c

from dmq.errors import StorageError
from dmq.records import CRC_START, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from dmq.storage import items
from dmq.storage.files import Buffer, File, Files, is_unreadable, read_around
from dmq.storage.image import Bytes, Event, Image
from dmq.storage.items import Damage
from dmq.storage.journal import JournalFile
from dmq.storage.log import LOGS, Host, Log, LogSettings
from dmq.storage.quarantine import LOST, move
from dmq.storage.replay import Report

_number = itemgetter(4)
"""Journal file of a batch."""
_SUFFIXES = ("log", "index", "timeindex")


@dataclass(slots=True)
class RecoveredLog:
    """One log, ready to be used."""

    state: items.State
    trusted: dict[int, int]
    """Bytes of each segment about which index files may be believed."""
    unsynced: set[int]
    """Segments that the page cache may hold more of than the disk."""
    flushed_base: int
    state_time: int
    state_number: int
    must_restate: bool = False
    """The files say something else than the journal did."""
    is_recovering: bool = False
    is_forgotten: bool = False

    def make_log(self, host: Host) -> Log:
        log = Log(host, self.state, LogSettings(is_async=self.state.is_async))
        log.is_recovering = log.is_recovering or self.is_recovering
        log.is_forgotten = self.is_forgotten
        for segment in log.segments_list:
            segment.trusted_bytes = min(self.trusted.get(segment.base, 0), segment.size)
            if segment.base in self.unsynced:
                log.unsynced[segment] = None
        log.flushed_base = self.flushed_base
        log.directory_changed = bool(self.unsynced) or self.must_restate
        return log


def adopt_clean(event: Event) -> RecoveredLog:
    """After a clean stop the files are what the last STATE says: nothing is looked at."""
    state = event.item
    assert isinstance(state, items.State)
    trusted = {segment.base: segment.size for segment in state.segments}
    base = state.segments[-1].base
    return RecoveredLog(state, trusted, set(), base, event.seq, event.number)


class Restorer:
    """Restores the files of all logs."""

    def __init__(self, files: Files, journal_files: list[JournalFile], report: Report) -> None:
        self._files = files
        self._journal = {file.number: file.file for file in journal_files}
        self._report = report
        self._is_unclean = not report.is_same_boot
        self._is_rotten = report.rotten is not None

    def restore(self, images: list[Image]) -> list[RecoveredLog]:
        """Idempotent; raises StorageError if the disk is full."""
        try:
            damage = [self._prepare(image) for image in images]
            for number in sorted(self._journal):
                self._write(number, images)
            return [self._finish(*pair) for pair in zip(images, damage, strict=True)]
        except OSError as error:
            raise StorageError(f"logs can't be restored: {error}") from error

    def _prepare(self, image: Image) -> tuple[Damage, ...]:
        """Everything but the journal's bytes; returns what is damaged."""
        directory = f"{LOGS}/{image.uid}"
        sizes = self._files.sizes(directory)
        self._finish_swaps(image, directory, sizes)
        bases = self._sort_out(image, directory, sizes)
        if self._is_rotten:
            self._judge_longer(image, directory, bases)
        damage = self._check(image, bases)
        for segment, byte in self._cuts(image, bases):
            self._open(directory, segment).cut(byte)
        return damage

    def _finish(self, image: Image, damage: tuple[Damage, ...]) -> RecoveredLog:
        flush = (image.flush_segment, image.flush_byte)
        trusted = {
            base: (size if base < flush[0] else flush[1] if base == flush[0] else 0)
            for base, (size, _) in image.segments.items()
        }
        unsynced = {pending[1] for pending in image.pending} | {flush[0]}
        if image.was_async:
            self._read_on(image, f"{LOGS}/{image.uid}")
            unsynced |= {base for base in image.segments if base >= flush[0]}
        log = RecoveredLog(
            image.final(damage),
            trusted,
            unsynced,
            flush[0],
            image.state_time,
            image.state_number,
            # What was cut off an async log must not come back behind newer bytes.
            must_restate=image.was_async or len(damage) > len(image.known.damage),
            # Of a former life too: a restart of the process alone makes nothing well.
            is_recovering=image.known.is_recovering or (image.was_async and self._is_unclean),
        )
        if damage:
            self._report.damaged.append(image.uid)
        if log.is_recovering:
            self._report.recovering.append(image.uid)
        return log

    def _finish_swaps(self, image: Image, directory: str, sizes: dict[str, int]) -> None:
        """Renames that followed a SWAP and may not have happened; files that no SWAP names go."""
        for item in image.swaps:
            bases = item.bases
            swap = _name(bases[0], f"{item.token}.swap")
            if swap in sizes:
                for base in bases:
                    self._unlink(directory, sizes, base)
                self._files.rename(f"{directory}/{swap}", f"{directory}/{_name(bases[0])}")
                sizes[_name(bases[0])] = sizes.pop(swap)
            for base in bases[1:]:
                if base not in image.segments:
                    self._unlink(directory, sizes, base)
        for name in [name for name in sizes if name.endswith(".swap")]:
            self._files.unlink(f"{directory}/{name}")
            del sizes[name]

    def _sort_out(self, image: Image, directory: str, sizes: dict[str, int]) -> dict[int, int]:
        """Remove what the journal says is gone, put aside what it does not know."""
        first = min(image.segments)
        kept: dict[int, int] = {}
        for name, size in [*sizes.items()]:
            stem, _, suffix = name.partition(".")
            if suffix not in _SUFFIXES or not stem.isdigit():
                self._put_aside(image, directory, name)
                continue
            base = int(stem)
            is_above = base > image.flush_segment and not image.was_async
            if base < first or is_above:
                self._let_go(image, directory, name)
            elif suffix == "log" and base < image.flush_segment and base not in image.segments:
                self._put_aside(image, directory, name)
            elif suffix == "log":
                kept[base] = size
        return kept

    def _judge_longer(self, image: Image, directory: str, bases: dict[int, int]) -> None:
        """Complete files with more than a rotten journal knows of.

        Either a write that failed left bytes behind the last batch, and they are cut off; or the
        journal lost the swap of a compacted file, which may be longer. If that has other records than
        its segment's (neighbours were merged) or is bad it can't stay, and what is missing is damage.
        """
        known = sorted(image.segments)
        for base, after in pairwise(known):
            size = image.segments[base][0]
            if base >= image.flush_segment or bases.get(base, 0) <= size:
                continue
            if self._good_bytes(image, directory, base, 0, base, limit=size)[0] == size:
                continue
            found, end, greatest = self._good_bytes(image, directory, base, 0, base)
            if found == bases[base] and end <= after:
                image.segments[base] = (found, greatest)
            else:
                self._put_aside(image, directory, _name(base))
                del bases[base]

    def _check(self, image: Image, bases: dict[int, int]) -> tuple[Damage, ...]:
        """What the synced files must have and don't."""
        damage = list(image.known.damage)
        for base, (size, _) in image.segments.items():
            if base > image.flush_segment:
                continue
            expected = image.flush_byte if base == image.flush_segment else size
            if bases.get(base, 0) < expected:
                damage.append(Damage(base, bases.get(base, 0), expected))
        return tuple(damage)

    def _cuts(self, image: Image, bases: dict[int, int]) -> list[tuple[int, int]]:
        """Files that are longer than the synced log, and how long they should be."""
        cuts = []
        for base, (size, _) in image.segments.items():
            if base > image.flush_segment or (base == image.flush_segment and image.was_async):
                continue
            expected = image.flush_byte if base == image.flush_segment else size
            if bases.get(base, 0) > expected:
                cuts.append((base, expected))
        return cuts

    def _write(self, number: int, images: list[Image]) -> None:
        """The bytes that one journal file has for all logs, neighbours in one write."""
        file: File | None = None
        for image in images:
            first = bisect_left(image.pending, number, key=_number)
            mine = image.pending[first : bisect_right(image.pending, number, key=_number)]
            if not mine:
                continue
            if file is None:
                file = self._journal[number]
                read = _reader(file)
            self._files.make_dir(f"{LOGS}/{image.uid}")
            self._write_runs(f"{LOGS}/{image.uid}", mine, read)

    def _write_runs(
        self, directory: str, pending: list[Bytes], read: Callable[[int, int], Buffer]
    ) -> None:
        run: list[Buffer] = []
        into, start, end = -1, 0, 0
        for _, segment, byte, length, _, position, _, _ in pending:
            if segment != into or byte != end:
                if run:
                    self._open(directory, into).write_at(start, run)
                into, start, end, run = segment, byte, byte, []
            run.append(read(position, length))
            end += length
        self._report.replayed_bytes += sum(one[3] for one in pending)
        self._open(directory, into).write_at(start, run)

    def _open(self, directory: str, base: int) -> File:
        return self._files.open(f"{directory}/{_name(base)}", create=True)

    def _unlink(self, directory: str, sizes: dict[str, int], base: int) -> None:
        for suffix in _SUFFIXES:
            if sizes.pop(_name(base, suffix), None) is not None:
                self._files.unlink(f"{directory}/{_name(base, suffix)}")

    def _let_go(self, image: Image, directory: str, name: str) -> None:
        """Remove what the log does not have. A rotten journal may be wrong about that: it is kept."""
        if self._is_rotten and name.endswith(".log"):
            self._put_aside(image, directory, name)
        else:
            self._files.unlink(f"{directory}/{name}")

    def _put_aside(self, image: Image, directory: str, name: str) -> None:
        moved = move(self._files, f"{directory}/{name}", LOST, f"{image.uid}-{name}")
        self._report.lost_found.append(moved)

    def _read_on(self, image: Image, directory: str) -> None:
        """Take in what an async log's files have beyond what the journal knows.

        The rest is cut off.
        """
        last = max([p[1] for p in image.pending], default=image.flush_segment)
        segments = {b: s for b, s in image.segments.items() if b <= last}
        present = self._files.sizes(directory)
        end = image.end_offset
        base = max(segments)
        while True:
            known, newest = segments[base]
            size, end, greatest = self._good_bytes(image, directory, base, known, end)
            if newest != items.UNKNOWN_TIMESTAMP:
                newest = max(newest, greatest)
            segments[base] = (size, newest)
            is_whole = present.get(_name(base), 0) <= size
            if not is_whole:
                self._open(directory, base).cut(size)
            if not is_whole or end == base or _name(end) not in present:
                break
            base = end
            segments[base] = (0, -1)
        for name in present:
            stem = name.partition(".")[0]
            if stem.isdigit() and int(stem) > base:
                self._let_go(image, directory, name)
        image.lose_tail(segments, end)

    def _good_bytes(
        self,
        image: Image,
        directory: str,
        base: int,
        position: int,
        end: int,
        limit: int | None = None,
    ) -> tuple[int, int, int]:
        """(bytes, end offset, greatest timestamp) of the good batches from `position` to `limit`."""
        name = f"{directory}/{_name(base)}"
        greatest = -1
        if not self._files.exists(name):
            return position, end, greatest
        file = self._files.open(name)
        file.forget_cache()  # Pages of a sync that failed look clean, and are on no disk.
        size = file.size() if limit is None else limit
        marks = image.known.marks
        while position + HEADER_SIZE <= size:
            header = HEADER.unpack(read_around(file, position, HEADER_SIZE))
            length = header[1] + LENGTH_OVERHEAD
            is_fit = (
                header[3] == MAGIC
                and HEADER_SIZE <= length <= size - position
                and header[0] == end
                and marks.fits(header[0], header[2])
                and header[6] >= 0
            )
            if not is_fit:
                break
            body = read_around(file, position + CRC_START, length - CRC_START)
            if crc32c(body) != header[4]:
                break
            position += length
            end = header[0] + header[6] + 1
            greatest = max(greatest, header[8])
        return position, end, greatest


def _reader(file: File) -> Callable[[int, int], Buffer]:
    """Gives pieces of a file: from memory, or, where not all of it can be read, one by one."""
    try:
        view = memoryview(file.read_at(0, file.size()))
    except OSError as error:
        if not is_unreadable(error):
            raise
        return file.read_at
    return lambda position, length: view[position : position + length]


def _name(base: int, suffix: str = "log") -> str:
    return f"{base:020d}.{suffix}"
