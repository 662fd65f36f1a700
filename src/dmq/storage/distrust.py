"""A sync failed: until the next start knows of it, what the page cache shows is not believed.

After a failed sync the kernel shows pages that are on no disk, and no later sync writes them. Nothing
that was promised with a sync rests on them, but an `async` log acknowledges what is in the page cache:
after a mere end of the process it may count on that, after a failed sync it may not. The process stops;
this mark tells the next one, which takes its `async` logs for such as have lost their tail. It needs no
sync of its own: it matters on the same boot only, for after another one no cache is believed anyway.
"""

from contextlib import suppress

from dmq.storage.files import Files

NAME = "sync-failed"


def note(files: Files) -> None:
    """Leave the mark. If not even that can be done, there is nobody left to tell."""
    with suppress(OSError):
        files.open(NAME, create=True)


def is_noted(files: Files) -> bool:
    return files.exists(NAME)


def forget(files: Files) -> None:
    """The journal says durably now who has lost a tail."""
    if files.exists(NAME):
        files.unlink(NAME)
