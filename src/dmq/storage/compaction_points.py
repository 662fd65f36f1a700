"""Up to where each log was cleaned, over restarts: a small file in the data directory.

    magic 4 · version 2 · unused 2 · count 4 · crc-32c 4 · count x (uid 8, clean point 8)

Derived, never truth, and not synced: if it is absent or bad, everything counts as dirty and is
cleaned once more. It must not run ahead of the files, though: a point is saved only when the swaps
that it stands for are durable, and a log that begins again takes the file away, for of what it is
sent nothing is clean. Whether that came in time nobody knows after a crash: then no point counts; an
orderly end syncs the directory.
Called by the broker's housekeeping and by logs.
"""

import struct

from crc32c import crc32c

from dmq.storage.files import Files, is_unreadable

NAME = "clean-points"
VERSION = 2
"""Points of version 1 are behind transactions that were not looked at."""
_MAGIC = b"DMQP"
_HEAD = struct.Struct(">4sHHII")
_ENTRY = struct.Struct(">Qq")


def load(files: Files) -> dict[int, int]:
    """Clean points by uid; none if the file is not there or not good."""
    if not files.exists(NAME):
        return {}
    file = files.open(NAME)
    try:
        raw = file.read_at(0, file.size())
    except OSError as error:
        if not is_unreadable(error):
            raise
        return {}
    if len(raw) < _HEAD.size:
        return {}
    magic, version, _, count, crc = _HEAD.unpack_from(raw)
    body = raw[_HEAD.size :]
    if (magic, version) != (_MAGIC, VERSION) or len(body) != count * _ENTRY.size:
        return {}
    return dict(_ENTRY.iter_unpack(body)) if crc32c(body) == crc else {}


def forget(files: Files) -> None:
    """Some point stands for what is there no more. Raises OSError."""
    if files.exists(NAME):
        files.unlink(NAME)


def save(files: Files, points: dict[int, int]) -> None:
    """Raises OSError; what was there before may be lost then, which does no harm."""
    body = b"".join(_ENTRY.pack(uid, points[uid]) for uid in sorted(points))
    raw = _HEAD.pack(_MAGIC, VERSION, 0, len(points), crc32c(body)) + body
    temporary = f"{NAME}.new"
    file = files.open(temporary, create=True)
    file.cut(0)
    file.write_at(0, [raw])
    files.rename(temporary, NAME)
