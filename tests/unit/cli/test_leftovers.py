"""Folders that a killed `dmq up` left: removed, unless somebody may still need them."""

import fcntl
import os
import time
from pathlib import Path

from dmq.cli.leftovers import AGE_MIN_S, PREFIX, remove


def folder(parent: Path, name: str, *locks: str, age_s: float = 2 * AGE_MIN_S) -> Path:
    made = parent / name
    made.mkdir()
    for lock in locks:
        (made / lock).parent.mkdir(exist_ok=True)
        (made / lock).write_bytes(b"")
    then = time.time() - age_s
    os.utime(made, (then, then))
    return made


def test_what_nobody_holds_is_removed(tmp_path: Path) -> None:
    one = folder(tmp_path, PREFIX + "one", "lock")
    many = folder(tmp_path, PREFIX + "many", "broker-1/lock", "broker-2/lock")
    empty = folder(tmp_path, PREFIX + "empty")
    removed = remove("/elsewhere", str(tmp_path))
    assert sorted(removed) == sorted(map(str, [one, many, empty]))
    assert list(tmp_path.iterdir()) == []


def test_what_may_be_needed_stays(tmp_path: Path) -> None:
    ours = folder(tmp_path, PREFIX + "ours")
    young = folder(tmp_path, PREFIX + "young", age_s=0)
    other = folder(tmp_path, "something-else")
    link = tmp_path / (PREFIX + "link")
    link.symlink_to(other)
    one = folder(tmp_path, PREFIX + "one", "lock")
    many = folder(tmp_path, PREFIX + "many", "broker-1/lock", "broker-2/lock")
    with (one / "lock").open() as first, (many / "broker-2" / "lock").open() as second:
        for held in (first, second):
            fcntl.flock(held, fcntl.LOCK_EX)
        assert remove(str(ours), str(tmp_path)) == []
    assert all(path.exists() for path in (ours, young, other, link, one, many))
