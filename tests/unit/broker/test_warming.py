"""What a worker finds when it reads what a door is to send."""

import errno
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes.disk import FakeDisk

from dmq.broker.runtime import Runtime
from dmq.storage.reading import FileSlice


class Inline:
    """Workers that are done at once."""

    def submit(
        self, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> None:
        try:
            work()
        except OSError as error:
            done(error)
        else:
            done(None)


@pytest.mark.parametrize(
    ("code", "is_told"), [(None, False), (errno.EIO, True), (errno.EMFILE, False)]
)
def test_only_what_the_disk_does_not_give_back_is_taken_for_bad(
    code: int | None, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FakeDisk(random.Random(1))
    disk.make_dir("logs")
    disk.make_dir("logs/7")
    file = disk.open("logs/7/00000000000000000000.log", create=True)
    file.write_at(0, [b"x" * 100])
    piece = FileSlice(cast(Any, file), 10, 20)
    if code is not None:

        def refuse(position: int, length: int) -> bytes:
            raise OSError(code, "no")

        monkeypatch.setattr(type(file), "read_at", lambda self, p, n: refuse(p, n))
    told: list[object] = []
    warmed: list[BaseException | None] = []
    runtime = SimpleNamespace(
        workers=Inline(), parts=SimpleNamespace(node=SimpleNamespace(unreadable=told.append))
    )
    Runtime.warm(cast(Runtime, runtime), piece, warmed.append)
    assert [getattr(error, "errno", None) for error in warmed] == [code]
    assert told == [piece] * is_told
    assert piece.uid == 7
