"""A simulated broker's disk: the fake one, which also knows what rotted on it."""

import random
from uuid import UUID

from fakes.disk import FakeDisk

from dmq.storage import journal
from dmq.storage.replay import read_journal


class Disk(FakeDisk):
    """A fake disk that knows whose it is, which only a mutant cares about, and what was flipped."""

    owner = 0

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._flips: dict[tuple[str, int], bytes] = {}
        """What a flip made of a byte."""
        self._carried: dict[str, None] = {}
        """Directories with a file that compaction made of one with a flip."""

    def flip(self, name: str, position: int, mask: int = 0x40) -> None:
        super().flip(name, position, mask)
        self._flips[name, position] = self.open(name).read_at(position, 1)

    def mended(self, name: str, start: int) -> None:
        """A repair wrote this file anew from here on: nothing excuses what is bad there still. What is
        good now is bad again if the power goes before the repair is synced."""
        for (at, position), byte in [*self._flips.items()]:
            if at == name and position >= start and self.open(name).read_at(position, 1) == byte:
                del self._flips[at, position]

    def carry(self, directory: str) -> None:
        """What was flipped outside of a batch's CRC may be in another place from now on."""
        if self.has_flips(directory):
            self._carried[directory] = None

    def has_flips(self, directory: str) -> bool:
        """Whether a flipped byte is left in these files: nobody wrote it anew or cut it off."""
        return directory in self._carried or any(
            name.startswith(f"{directory}/")
            and self.exists(name)
            and self.open(name).read_at(position, 1) == byte
            for (name, position), byte in self._flips.items()
        )


def make_disk(rng: random.Random, owner: int) -> Disk:
    disk = Disk(rng)
    disk.owner = owner
    return disk


def flip_record(disk: Disk, directory_id: UUID, rng: random.Random) -> bool:
    """Flip a bit of a record of the journal that a later one covers: of the last one nobody can tell."""
    salt = journal.salt_of(directory_id)
    records = []
    for file in read_journal(disk, salt).files:
        for place, _ in journal.read_records(file.file, file.number, salt):
            records.append((place.seq, file.number, place))
    records.sort()
    if len(records) < 2:
        return False
    _, number, place = rng.choice(records[:-1])
    at = rng.randrange(place.position - journal.HEADER_SIZE, place.end)
    disk.flip(journal.file_name(number), at, 1 << rng.randrange(8))
    return True


def has_old_tail(disk: Disk, directory_id: UUID) -> bool:
    """Whether a used journal file goes on with good records of its former life."""
    salt = journal.salt_of(directory_id)
    for name in disk.list(journal.DIRECTORY):
        number = journal.file_number(name)
        if number is not None:
            file = disk.open(f"{journal.DIRECTORY}/{name}")
            ends = [place.end for place, _ in journal.read_records(file, number, salt)]
            if ends and file.read_at(ends[-1], file.size()).find(journal.MAGIC) >= 0:
                return True
    return False
