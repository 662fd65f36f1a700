"""Which files a path means for `dmq log dump`, and the events of all of them.

A data directory is its identity, its journal and its logs; a directory is the segments in it; a file
is itself. Called by `log`; never writes.
"""

from collections.abc import Iterator
from pathlib import Path

from dmq.cli.exits import not_found, usage
from dmq.cli.log_journal import is_journal_file, journal_events, read_meta
from dmq.cli.log_segments import Event, index_events, segment_events
from dmq.storage import meta

SEGMENTS = (".log", ".swap")
INDEXES = (".index", ".timeindex")
KINDS = "a data directory, a log's directory, or a .log, .index, .timeindex or journal file"


def events_of(path: Path, *, records: bool) -> Iterator[Event]:
    """Everything that can be told about the path. Raises CommandError if it is none of ours."""
    if not path.exists():
        raise not_found(f"There is no {str(path)!r}", f"Give {KINDS}.")
    if path.is_dir():
        yield from _directory_events(path, records=records)
        return
    if not _is_ours(path):
        raise usage(f"{str(path)!r} is no file of a log", f"Give {KINDS}.")
    yield from _file_events(path, records=records)


def _directory_events(path: Path, *, records: bool) -> Iterator[Event]:
    if (path / meta.NAME).exists():
        found = read_meta(path)
        yield {
            "type": "data_directory",
            "path": str(path),
            "version": found.version,
            "directory_id": str(found.directory_id),
            "cluster_id": found.cluster_id,
            "node_id": found.node_id,
        }
    files = [file for file in _walk(path) if _is_ours(file)]
    if not files:
        raise usage(f"There is nothing of a log in {str(path)!r}", f"Give {KINDS}.")
    for file in files:
        yield from _file_events(file, records=records)


def _walk(path: Path) -> Iterator[Path]:
    """Files below, the journal first, then by name: the order in which things happened."""
    found = [file for file in path.rglob("*") if file.is_file()]
    return iter(sorted(found, key=lambda file: (not is_journal_file(file), str(file))))


def _is_ours(path: Path) -> bool:
    is_named = path.stem.isdecimal() and path.suffix in SEGMENTS + INDEXES
    return is_named or is_journal_file(path.absolute())


def _file_events(path: Path, *, records: bool) -> Iterator[Event]:
    if path.suffix in SEGMENTS:
        yield from segment_events(path, records=records)
    elif path.suffix in INDEXES:
        yield from index_events(path)
    else:
        yield from journal_events(path.absolute(), records=records)
