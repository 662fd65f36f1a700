"""The work of compaction: keep the last record of each key, in new files beside the old ones.

    1  read the ends of transactions, up to the first that is open: so far goes the cleaning
    2  read the keys of the dirty part into a map: key -> its last offset, as far as it has room
    3  copy the segments up to there, small neighbours into one file, without the records that an
       entry of the map overtakes, without keyless ones and without tombstones past their time;
       where whole batches go one without records stands for them, so that each batch begins where
       the one before it ends: offsets lie outside the CRC, and this is how they are checked
    4  sync the new files and the directory; the old ones stay until the journal says SWAP

Only ever creates `.swap` files; a crash at any point leaves the log as it was. Runs in a process
of its own (broker/compactor.py), or in a test on a fake disk: all it meets is `Files`.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from dmq.records import (
    DELETE_HORIZON,
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchError,
    BatchHeader,
    check_crc,
    filler,
    read_header,
    scan,
)
from dmq.storage.compaction_batch import (
    RawRecord,
    Verdict,
    empty_batch,
    filter_batch,
    read_records,
)
from dmq.storage.compaction_job import Job, Result, Source, Swap
from dmq.storage.compaction_transactions import Transactions
from dmq.storage.files import Buffer, File, Files, is_unreadable
from dmq.storage.index import RELATIVE_OFFSET_MAX, Index
from dmq.storage.segment import BadBatchError, walk

KEY_BYTES = 200
"""What one key costs in memory: digest, offset and their place in a dict that grows by doubling."""
_MADE = ("swap", "index.swap", "timeindex.swap")
_DIGEST_BYTES = 16
_CHUNK_BYTES = 1024 * 1024

Progress = Callable[[int], None]
"""Told of bytes read and written; may wait, to keep to a rate, or end the process."""


class Batch(NamedTuple):
    """A batch as read."""

    position: int
    header: BatchHeader
    data: memoryview


def compact(files: Files, job: Job, progress: Progress) -> Result:
    """Do it. Raises BadBatchError at bytes that are not what was written, or that the disk gives not
    back; OSError if it fails otherwise."""
    remove_leftovers(files, job.directory)
    cleaning = _Cleaning(files, job, progress)
    cleaning.read_ends()
    cleaning.read_keys()
    swaps = [swap for group in cleaning.groups() if (swap := cleaning.rewrite(group))]
    if swaps:
        files.sync_dir(job.directory)
    return cleaning.result(swaps)


def remove_leftovers(files: Files, directory: str) -> None:
    """Files of a run that did not end. Those with names of their own are the broker's: a SWAP may
    speak of one."""
    for name in files.list(directory):
        if name.partition(".")[2] in _MADE:
            files.unlink(f"{directory}/{name}")


class _Cleaning:
    """One job being done."""

    def __init__(self, files: Files, job: Job, progress: Progress) -> None:
        self._files = files
        self._job = job
        self._progress = progress
        bases = [source.base for source in job.segments]
        self._next_bases = dict(zip(bases, [*bases[1:], job.end], strict=True))
        """Where a segment's offsets end."""
        self._last_offsets: dict[bytes, int] = {}
        self._clean_point = job.end
        self._producers: dict[int, int] = {}
        """Producer id -> base offset of its last batch: that one's sequence is still needed."""
        self._markers: dict[int, int] = {}
        """The same of its last marker, for its epoch."""
        self._transactions = Transactions()
        self._horizon = job.now + job.delete_retention_ms
        self._records_read = self._records_kept = 0
        self._bytes_read = self._bytes_kept = 0
        self._unreadable = 0

    # ---- 1: the transactions

    def read_ends(self) -> None:
        """What was committed, and where the first transaction begins that has no end yet."""
        for source in self._job.segments:
            file = self._open(source)
            for place in walk(file, 0, source.size):
                header = read_header(_read(file, place.position, HEADER_SIZE, source.size))
                if header.is_transactional:
                    size = header.size if header.is_control else 0
                    data = memoryview(_read(file, place.position, size, source.size))
                    self._transactions.note(header, data)
            self._progress(source.size)
        # What is beyond may not have happened, and a point must not go past what was not looked at.
        first_open = self._transactions.first_open
        if first_open is not None:
            self._clean_point = min(self._clean_point, first_open)

    # ---- 2: the keys

    def read_keys(self) -> None:
        """Fill the map; where it is full, that is as far as this cleaning goes."""
        job = self._job
        cutoff = job.now - job.producer_expiration_ms
        for source in job.segments:
            if self._next_bases[source.base] <= job.first_dirty:
                if source.max_timestamp > cutoff:
                    self._read_producers(source)
            elif source.base >= self._clean_point or not self._read_segment_keys(source):
                return

    def _read_producers(self, source: Source) -> None:
        file = self._open(source)
        for place in walk(file, 0, source.size):
            header = read_header(_read(file, place.position, HEADER_SIZE, source.size))
            self._note_producer(header)
        self._progress(source.size)

    def _note_producer(self, header: BatchHeader) -> None:
        job = self._job
        if header.producer_id == NO_PRODUCER_ID:
            return
        if header.max_timestamp > job.now - job.producer_expiration_ms:
            last = self._markers if header.is_control else self._producers
            last[header.producer_id] = header.base_offset

    def _read_segment_keys(self, source: Source) -> bool:
        """False when there is no room for one more key."""
        for batch in self._batches(source):
            header = batch.header
            self._note_producer(header)
            if header.base_offset >= self._clean_point:
                return False
            if header.last_offset < self._job.first_dirty or self._is_kept_whole(header):
                continue
            try:
                _, records = read_records(batch.data, header)
            except BatchError:
                continue  # It stays as it is, and overtakes nothing.
            if not self._put_all(records):
                return False
        return True

    def _put_all(self, records: Sequence[RawRecord]) -> bool:
        offsets, keys_max, first = self._last_offsets, self._job.keys_max, self._job.first_dirty
        for offset, key, *_ in records:
            if key is None or offset < first:
                continue
            name = key if len(key) < _DIGEST_BYTES else _digest(key)
            if len(offsets) >= keys_max and name not in offsets:
                self._clean_point = offset
                return False
            offsets[name] = offset
        return True

    # ---- 3: the copies

    def groups(self) -> list[list[Source]]:
        """Segments that become one, by their sizes before."""
        groups: list[list[Source]] = []
        size = 0
        for source in self._job.segments:
            if source.base >= self._clean_point:
                break
            span = self._next_bases[source.base] - (groups[-1][0].base if groups else source.base)
            is_far = span > RELATIVE_OFFSET_MAX
            if not groups or is_far or size + source.size > self._job.segment_bytes:
                groups.append([])
                size = 0
            groups[-1].append(source)
            size += source.size
        return groups

    def rewrite(self, group: Sequence[Source]) -> Swap | None:
        """The file that replaces these segments; None if it would be the same as the one there."""
        job = self._job
        output = _Output(self._files, job, group, self._progress)
        for source in group:
            for batch in self._batches(source):
                is_last = source is group[-1] and batch.position + len(batch.data) == source.size
                verdict = self._judge(batch, is_last)
                self._transactions.copied(batch.header, bool(verdict.data))
                output.add(batch, verdict)
        self._bytes_kept += output.size
        return output.finish()

    def _judge(self, batch: Batch, is_last: bool) -> Verdict:
        header = batch.header
        self._records_read += header.record_count
        self._bytes_read += len(batch.data)
        if header.last_offset < self._job.log_start:
            return Verdict(empty_batch(header) if is_last else b"", True, 0, header.max_timestamp)
        if header.base_offset >= self._clean_point:
            return self._whole(batch)
        if not header.is_control and self._is_kept_whole(header):
            return self._whole(batch)
        try:
            verdict = (self._end if header.is_control else self._filter)(batch, is_last)
        except BatchError:
            self._unreadable += 1
            return self._whole(batch)
        self._records_kept += verdict.kept
        return verdict

    def _filter(self, batch: Batch, is_last: bool) -> Verdict:
        header = batch.header
        data, records = read_records(batch.data, header)
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        keeps_tombstones = not has_horizon or self._job.now < header.base_timestamp
        is_last_of_producer = self._producers.get(header.producer_id) == header.base_offset
        kept = self._kept(records, keeps_tombstones)
        has_tombstones = any(not record[2] for record in kept)
        # The end is the whole batch's, so it is set when all of it was looked at.
        sets_horizon = not has_horizon and header.last_offset < self._clean_point
        return filter_batch(
            batch.data,
            header,
            data,
            records,
            kept,
            self._horizon if sets_horizon and has_tombstones else None,
            stays_if_empty=is_last or is_last_of_producer,
        )

    def _end(self, batch: Batch, is_last: bool) -> Verdict:
        """Of a marker: it goes some time after the last of its transaction has gone."""
        header = batch.header
        is_last_of_producer = self._markers.get(header.producer_id) == header.base_offset
        is_bare = self._transactions.is_bare_commit(header, batch.data)
        if is_last or is_last_of_producer or not is_bare:
            return Verdict(batch.data, False, header.record_count, header.max_timestamp)
        data, records = read_records(batch.data, header)
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        is_due = has_horizon and self._job.now >= header.base_timestamp
        return filter_batch(
            batch.data,
            header,
            data,
            records,
            [] if is_due else records,
            None if has_horizon else self._horizon,
            stays_if_empty=False,
        )

    def _is_kept_whole(self, header: BatchHeader) -> bool:
        return header.is_control or not self._transactions.is_committed(header)

    def _whole(self, batch: Batch) -> Verdict:
        header = batch.header
        self._records_kept += header.record_count
        return Verdict(batch.data, False, header.record_count, header.max_timestamp)

    def _kept(self, records: Sequence[RawRecord], keeps_tombstones: bool) -> list[RawRecord]:
        """The records that nothing overtook."""
        last_offset, clean_point = self._last_offsets.get, self._clean_point
        log_start = self._job.log_start
        kept = []
        for record in records:
            offset, key, has_value, *_ = record
            if offset < clean_point:
                if key is None or offset < log_start or not (has_value or keeps_tombstones):
                    continue
                if offset < last_offset(key if len(key) < _DIGEST_BYTES else _digest(key), -1):
                    continue
            kept.append(record)
        return kept

    # ---- both

    def _open(self, source: Source) -> File:
        return self._files.open(f"{self._job.directory}/{source.base:020d}.log")

    def _batches(self, source: Source) -> Iterator[Batch]:
        """Every batch of a segment, checked. Raises BadBatchError.

        Its offset lies outside of the CRC: one that rotted would overtake records that are newer.
        """
        file = self._open(source)
        stop = self._next_bases[source.base]
        position, following = 0, source.base
        while position < source.size:
            chunk = _read_chunk(file, position, source.size)
            self._progress(len(chunk))
            view = memoryview(chunk)
            for at, header in scan(chunk):
                is_in_place = following == header.base_offset <= header.last_offset < stop
                if not is_in_place or header.magic != MAGIC or not check_crc(chunk, at, header):
                    raise BadBatchError(file.name, position + at, source.size)
                following = header.last_offset + 1
                yield Batch(position + at, header, view[at : at + header.size])
            position += at + header.size
        if following != stop:  # Each batch is good for itself: nobody can say which are missing.
            raise BadBatchError(file.name, 0, source.size)

    def result(self, swaps: Sequence[Swap]) -> Result:
        return Result(
            self._job.uid,
            self._clean_point,
            tuple(swaps),
            len(self._last_offsets),
            self._records_read,
            self._records_kept,
            self._bytes_read,
            self._bytes_kept,
            self._unreadable,
        )


def _digest(key: bytes) -> bytes:
    """What stands for a long key in the map. Short ones stand for themselves: no digest is short."""
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _read_chunk(file: File, position: int, end: int) -> bytes:
    """At least one whole batch. Raises BadBatchError."""
    chunk = _read(file, position, min(_CHUNK_BYTES, end - position), end)
    size = read_header(chunk).size if len(chunk) >= HEADER_SIZE else 0
    if size > len(chunk):
        chunk = _read(file, position, min(size, end - position), end)
    if not HEADER_SIZE <= size <= len(chunk):
        raise BadBatchError(file.name, position, end)
    return chunk


def _read(file: File, position: int, length: int, end: int) -> bytes:
    """Bytes of a batch at `position`. Raises BadBatchError if the disk gives them not back."""
    try:
        return file.read_at(position, length)
    except OSError as error:
        if is_unreadable(error):
            raise BadBatchError(file.name, position, end) from error
        raise


class _Hole(NamedTuple):
    """Offsets of which no record is left, and the batch that was at the first of them."""

    first: Batch
    start: int
    stop: int
    epoch: int


class _Output:
    """The new file of a group. Created at the first difference: most old segments have none."""

    def __init__(self, files: Files, job: Job, group: Sequence[Source], progress: Progress) -> None:
        self._files = files
        self._job = job
        self._group = group
        self._progress = progress
        self._base = group[0].base
        self._file: File | None = None
        self._parts: list[Buffer] = []
        self._parts_bytes = 0
        self._index = Index()
        self.size = 0
        self._max_timestamp = NO_TIMESTAMP
        self._edges = frozenset(job.edges)
        self._hole: _Hole | None = None
        """Batches that went, and stand next to each other."""
        if len(group) > 1:
            self._create()

    def add(self, batch: Batch, verdict: Verdict) -> None:
        if verdict.data:
            self._fill()
            self._add(batch.position, verdict, batch.header.last_offset)
        else:
            self._widen(batch)

    def _widen(self, batch: Batch) -> None:
        header, hole = batch.header, self._hole
        if hole is None or header.leader_epoch != hole.epoch or header.base_offset in self._edges:
            self._fill()
            self._hole = _Hole(batch, header.base_offset, header.next_offset, header.leader_epoch)
        else:
            self._hole = hole._replace(stop=header.next_offset)

    def _fill(self) -> None:
        """Put one batch in the place of those that went; it may be there since the last cleaning."""
        hole, self._hole = self._hole, None
        if hole is not None:
            data = filler(hole.start, hole.stop, hole.epoch)
            verdict = Verdict(data, data != hole.first.data, 0, NO_TIMESTAMP)
            self._add(hole.first.position, verdict, hole.stop - 1)

    def _add(self, position: int, verdict: Verdict, last_offset: int) -> None:
        if verdict.is_changed and self._file is None:
            self._create()
            self._copy(position)
        length = len(verdict.data)
        self._index.note(
            self.size,
            length,
            last_offset - self._base,
            verdict.max_timestamp,
            self._job.index_interval_bytes,
        )
        self._max_timestamp = max(self._max_timestamp, verdict.max_timestamp)
        if self._file is None:
            self.size += length
        else:
            self._put(verdict.data)

    def _create(self) -> None:
        # A new inode each time: whoever may still hold the old one can't reach into this.
        name = self._job.swap_name(self._base)
        if self._files.exists(name):
            self._files.unlink(name)
        self._file = self._files.open(name, create=True)

    def _copy(self, end: int) -> None:
        """What was the same so far."""
        source = self._files.open(f"{self._job.directory}/{self._base:020d}.log")
        self.size = 0
        while self.size < end:
            length = min(_CHUNK_BYTES, end - self.size)
            chunk = _read(source, self.size, length, self._group[0].size)
            if not chunk:
                raise BadBatchError(source.name, self.size, self._group[0].size)
            self._put(chunk)

    def _put(self, data: Buffer) -> None:
        self._parts.append(data)
        self._parts_bytes += len(data)
        self.size += len(data)
        if self._parts_bytes >= _CHUNK_BYTES:
            self._flush()

    def _flush(self) -> None:
        assert self._file is not None
        self._file.write_at(self.size - self._parts_bytes, self._parts)
        self._progress(self._parts_bytes)
        self._parts, self._parts_bytes = [], 0

    def finish(self) -> Swap | None:
        self._fill()
        if self._file is None:
            return None
        if self._parts:
            self._flush()
        self._file.sync()
        self._index.note_time()
        for kind, raw in (
            ("index", self._index.offset_bytes()),
            ("timeindex", self._index.time_bytes()),
        ):
            name = self._job.swap_name(self._base, kind)
            self._files.open(name, create=True).write_at(0, [raw])
        bases = tuple(source.base for source in self._group)
        return Swap(bases, self.size, self._max_timestamp)
