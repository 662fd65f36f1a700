"""Which log a replica gets, and whose promises it keeps."""

import random
from uuid import UUID

from fakes.disk import FakeDisk
from unit.broker.multiraft.wiring import SMALL, STORE, TOPIC

from dmq.broker.multiraft.driven import BLANK, parked
from dmq.broker.multiraft.frames import GroupKey
from dmq.broker.multiraft.registry import Registry
from dmq.storage.store import Store
from dmq.types import Voter

KEY = GroupKey(TOPIC, 0)
ME, OTHER = Voter(1, UUID(int=1)), Voter(2, UUID(int=2))


def turn(store: Store) -> None:
    """Write and sync all that was staged."""
    taken = store.begin_turn(0)
    assert taken is not None
    taken.sync()
    store.end_turn(taken, 0)


def test_a_log_that_began_keeps_what_the_former_one_promised() -> None:
    """A crash came after the turn in which it began, and before the one that was to say the promise."""
    disk = FakeDisk(random.Random(1))
    store = Store.open(disk, STORE, now=0)
    former = store.create(*KEY, voters=(ME, OTHER), settings=SMALL.log)
    former.set_hard(7, OTHER)
    turn(store)
    former.reset(parked(former.end), former.end_offset)
    store.create(*KEY, voters=(), settings=SMALL.log, base=BLANK)
    turn(store)
    disk.kill()
    again = Store.open(disk, STORE, now=0)
    claimed = Registry(again).claim(KEY, ME, (ME, OTHER), SMALL, is_founding=False)
    assert (claimed.is_new, claimed.has_staged) == (False, True)
    assert (claimed.log.epoch, claimed.log.vote) == (7, OTHER)
    turn(again)
    disk.kill()
    last = Registry(Store.open(disk, STORE, now=0)).claim(KEY, ME, (), SMALL, is_founding=False)
    assert (last.log.epoch, last.log.vote, last.has_staged) == (7, OTHER, False)
