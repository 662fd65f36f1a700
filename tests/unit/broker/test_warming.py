"""What a worker finds when it reads what a door is to send."""

import errno
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes.broker import Inline
from fakes.disk import FakeDisk, FakeFile

from dmq.broker.runtime import Runtime
from dmq.storage.reading import FileSlice


def warmed(piece: FileSlice) -> tuple[list[int | None], list[object]]:
    """What the door hears, and what the node is told."""
    heard: list[int | None] = []
    told: list[object] = []
    node = SimpleNamespace(unreadable=told.append)
    runtime = SimpleNamespace(workers=Inline(), parts=SimpleNamespace(node=node))
    Runtime.warm(
        cast(Runtime, runtime), piece, lambda error: heard.append(getattr(error, "errno", None))
    )
    return heard, told


def a_file() -> FakeFile:
    disk = FakeDisk(random.Random(1))
    disk.make_dir("logs")
    disk.make_dir("logs/7")
    file = disk.open("logs/7/00000000000000000000.log", create=True)
    file.write_at(0, [b"x" * 100])
    return file


@pytest.mark.parametrize(
    ("code", "is_told"), [(None, False), (errno.EIO, True), (errno.EMFILE, False)]
)
def test_only_what_the_disk_does_not_give_back_is_taken_for_bad(
    code: int | None, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_file()
    piece = FileSlice(cast(Any, file), 10, 20)
    if code is not None:

        def refuse(self: FakeFile, position: int, length: int) -> bytes:
            raise OSError(code, "no")

        monkeypatch.setattr(FakeFile, "read_at", refuse)
    assert warmed(piece) == ([code], [piece] * is_told)
    assert piece.uid == 7


def test_a_file_that_lost_its_end_is_bad_too() -> None:
    """Else each fetch would end its connection, and nobody would know why."""
    piece = FileSlice(cast(Any, a_file()), 90, 20)
    assert warmed(piece) == ([errno.EIO], [piece])
