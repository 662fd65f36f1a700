"""A disk that loses what was not synced, in the worst order that a real one may choose.

Per file it keeps the synced image and the operations since. `power_cut` gives each unsynced sector
any prefix of the writes to it, the size any of the sizes since the sync, and undoes any subset of
unsynced directory operations. `kill` is the end of the process only: the page cache stays. A
`budget` of operations ends in `Crash`, so a crash may hit anywhere. On top: bit flips, a full
disk, syncs that fail.

A sync that fails is as on Linux: it says so once. Of what it had to write the disk has any part, and
the pages count as clean: they are shown as if nothing had happened, but no later sync writes them, and
`forget_cache` brings up what the disk has. Only the file's size is still to be written.
"""

import errno
import random
from collections.abc import Sequence
from typing import NoReturn
from uuid import UUID

Buffer = bytes | bytearray | memoryview
SECTOR = 32


class Crash(Exception):  # noqa: N818
    """The process ends here."""


class Inode:
    """A file's bytes: synced, and as the page cache shows them."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.now = bytearray()
        self.ops: list[tuple[int, bytes | None]] = []
        """(position, bytes) of writes, (size, None) of cuts, since the last sync."""
        self.reserved = 0
        self.is_lying = False
        """A sync failed: `now` may show what is neither synced nor in the operations since."""
        self.unreadable: list[tuple[int, int]] = []
        """From and to before which byte the disk gives nothing back, until they are written again."""

    def heal(self, start: int, stop: int) -> None:
        parts = [((a, min(b, start)), (max(a, stop), b)) for a, b in self.unreadable]
        self.unreadable = [part for both in parts for part in both if part[0] < part[1]]

    def do(self, op: tuple[int, bytes | None]) -> None:
        apply(self.now, op)
        self.ops.append(op)

    def held(self) -> int:
        """Bytes of the disk that it takes."""
        return max(len(self.now), self.reserved)

    def sync(self) -> None:
        if self.ops:
            self.synced = self._true() if self.is_lying else bytearray(self.now)
            self.ops.clear()

    def fail(self, rng: random.Random) -> None:
        """A sync failed."""
        if self.ops:
            self.synced = self._survivors(rng)
            self.ops.clear()
            if len(self.synced) != len(self.now):
                self.ops.append((len(self.now), None))
            self.is_lying = True

    def forget(self) -> None:
        """Clean pages are read from the disk again."""
        if self.is_lying:
            self.now = self._true()
            self.is_lying = False

    def _true(self) -> bytearray:
        """What it would be if all operations were synced."""
        found = bytearray(self.synced)
        for op in self.ops:
            apply(found, op)
        return found

    def lose(self, rng: random.Random) -> None:
        """What a power cut leaves of it."""
        self.reserved = 0
        self.is_lying = False
        if self.ops:
            self.synced = self._survivors(rng)
            self.ops.clear()
        self.now = bytearray(self.synced)

    def _survivors(self, rng: random.Random) -> bytearray:
        """What the disk may have if the operations were not synced."""
        versions = [bytearray(self.synced)]
        for op in self.ops:
            version = bytearray(versions[-1])
            apply(version, op)
            versions.append(version)
        mode = rng.random()
        if mode < 0.3:
            size = len(versions[-1])
        elif mode < 0.4:
            size = len(versions[0])
        else:
            size = len(rng.choice(versions))
        out = bytearray(size)
        for at in range(0, size, SECTOR):
            version = versions[-1] if mode < 0.2 else rng.choice(versions)
            sector = version[at : min(at + SECTOR, size)]
            out[at : at + len(sector)] = sector
        return out


def apply(buf: bytearray, op: tuple[int, bytes | None]) -> None:
    at, data = op
    if data is None:
        if at <= len(buf):
            del buf[at:]
        else:
            buf.extend(bytes(at - len(buf)))
        return
    if len(buf) < at:
        buf.extend(bytes(at - len(buf)))
    buf[at : at + len(data)] = data


class Folder:
    """A directory."""

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}


Node = Inode | Folder


class Entry:
    """An unsynced directory operation, undone with `undo`."""

    def __init__(
        self, folders: tuple[Folder, ...], names: tuple[str, ...], node: Node, kind: str
    ) -> None:
        self.folders, self.names, self.node, self.kind = folders, names, node, kind
        self.replaced: Node | None = None

    def undo(self) -> None:
        folder, name = self.folders[0], self.names[0]
        if self.kind == "add":
            if folder.entries.get(name) is self.node:
                del folder.entries[name]
        elif self.kind == "del":
            folder.entries.setdefault(name, self.node)
        else:
            target, new = self.folders[1], self.names[1]
            if target.entries.get(new) is self.node and name not in folder.entries:
                del target.entries[new]
                folder.entries[name] = self.node
                if self.replaced is not None:
                    target.entries[new] = self.replaced


class FakeFile:
    """An open file of a fake disk."""

    def __init__(self, disk: "FakeDisk", name: str, inode: Inode) -> None:
        self._disk = disk
        self.name = name
        self.inode = inode

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a fake file has no descriptor")

    def read_at(self, position: int, length: int) -> bytes:
        if any(a < position + length and position < b for a, b in self.inode.unreadable):
            raise OSError(errno.EIO, "the disk gives nothing back", self.name)
        return bytes(self.inode.now[position : position + length])

    def write_at(self, position: int, parts: Sequence[Buffer], *, is_cached: bool = True) -> None:
        self._disk.tick()
        self._disk.uncached_writes += not is_cached
        data = b"".join(parts)
        room = self._disk.room(self.inode, position + len(data))
        if room < len(data):
            kept = self._disk.rng.randint(0, max(room, 0))
            if kept:
                self.inode.do((position, data[:kept]))
            raise OSError(errno.ENOSPC, "no space left", self.name)
        self.inode.do((position, data))
        self.inode.heal(position, position + len(data))

    def is_same(self, other: object) -> bool:
        return isinstance(other, FakeFile) and self.inode is other.inode

    def size(self) -> int:
        return len(self.inode.now)

    def cut(self, size: int) -> None:
        self._disk.tick()
        self.inode.do((size, None))
        self.inode.reserved = min(self.inode.reserved, size)

    def allocate(self, size: int) -> None:
        self._disk.tick()
        if self._disk.room(self.inode, size) < size:
            raise OSError(errno.ENOSPC, "no space left", self.name)
        if size > len(self.inode.now):
            self.inode.do((size, None))

    def reserve(self, size: int) -> bool:
        self._disk.tick()
        if self._disk.room(self.inode, size) < size - self.inode.held():
            raise OSError(errno.ENOSPC, "no space left", self.name)
        self.inode.reserved = max(self.inode.reserved, size)
        return True

    def start_sync(self, position: int = 0, length: int = 0, *, waits: bool = False) -> None:
        self._disk.tick()
        if self._disk.is_sync_failing:
            self._fail()

    def sync(self) -> None:
        if self._disk.before_sync():
            self._fail()
        self.inode.sync()

    def _fail(self) -> NoReturn:
        self.inode.fail(self._disk.rng)
        raise OSError(errno.EIO, "sync failed")

    def forget_cache(self) -> None:
        self.inode.forget()

    def is_cached(self, position: int, length: int) -> bool:
        return True


class FakeDisk:
    """A data directory in memory."""

    def __init__(self, rng: random.Random) -> None:
        self.root = "fake"
        self.rng = rng
        self.top = Folder()
        self.pending: list[Entry] = []
        self.budget: int | None = None
        """Operations until the crash."""
        self.capacity: int | None = None
        self.is_sync_failing = False
        self.uncached_writes = 0
        self.sync_count = 0
        self._is_locked = False
        self._boot = UUID(int=rng.getrandbits(128) | 1)

    # ---- faults

    def tick(self) -> None:
        if self.budget is not None:
            self.budget -= 1
            if self.budget < 0:
                raise Crash

    def before_sync(self) -> bool:
        """Whether it fails."""
        self.tick()
        self.sync_count += 1
        return self.is_sync_failing

    def power_cut(self) -> None:
        """Unsynced sectors and directory operations survive at random."""
        for entry in reversed(self.pending):
            if self.rng.random() < 0.5:
                entry.undo()
        self.pending.clear()
        for inode in self.inodes():
            inode.lose(self.rng)
        self._boot = UUID(int=self.rng.getrandbits(128) | 1)
        self.kill()

    def kill(self) -> None:
        """The process ends; the page cache stays."""
        self._is_locked = False
        self.budget = None

    def flip(self, name: str, position: int, mask: int = 0x40) -> None:
        """A bit rots, on disk and in what is read."""
        inode = self._node(name)
        assert isinstance(inode, Inode)
        inode.now[position] ^= mask
        if position < len(inode.synced):
            inode.synced[position] ^= mask

    def spoil(self, name: str, position: int, length: int = 1) -> None:
        """The disk gives these bytes not back, until somebody writes there."""
        inode = self._node(name)
        assert isinstance(inode, Inode)
        inode.unreadable.append((position, position + length))

    def room(self, inode: Inode, end: int) -> int:
        """Bytes that a write up to `end` may have, as far as the disk is not full."""
        if self.capacity is None or end <= inode.held():
            return 1 << 60
        return max(self.free_bytes(), 0)

    def inodes(self, *, with_unlinked: bool = True) -> list[Inode]:
        found: dict[Inode, None] = {}
        todo: list[Node] = [self.top]
        if with_unlinked:
            todo += [entry.node for entry in self.pending]
        while todo:
            node = todo.pop()
            if isinstance(node, Folder):
                todo.extend(node.entries.values())
            else:
                found[node] = None
        return [*found]

    # ---- Files

    def lock(self) -> None:
        if self._is_locked:
            raise BlockingIOError(errno.EAGAIN, "locked")
        self._is_locked = True

    def unlock(self) -> None:
        self._is_locked = False

    def _folder(self, name: str) -> tuple[Folder, str]:
        folder = self.top
        *path, last = name.split("/")
        for part in path:
            node = folder.entries.get(part)
            if not isinstance(node, Folder):
                raise FileNotFoundError(errno.ENOENT, "no such directory", name)
            folder = node
        return folder, last

    def _node(self, name: str) -> Node | None:
        if name == ".":
            return self.top
        try:
            folder, last = self._folder(name)
        except FileNotFoundError:
            return None
        return folder.entries.get(last)

    def open(self, name: str, *, create: bool = False) -> FakeFile:
        folder, last = self._folder(name)
        node = folder.entries.get(last)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", name)
            self.tick()
            node = Inode()
            folder.entries[last] = node
            self.pending.append(Entry((folder,), (last,), node, "add"))
        assert isinstance(node, Inode)
        return FakeFile(self, name, node)

    def exists(self, name: str) -> bool:
        return self._node(name) is not None

    def list(self, directory: str) -> list[str]:
        node = self._node(directory)
        return sorted(node.entries) if isinstance(node, Folder) else []

    def sizes(self, directory: str) -> dict[str, int]:
        node = self._node(directory)
        if not isinstance(node, Folder):
            return {}
        return {
            name: len(entry.now) if isinstance(entry, Inode) else 0
            for name, entry in sorted(node.entries.items())
        }

    def make_dir(self, name: str) -> None:
        folder, last = self._folder(name)
        if last in folder.entries:
            return
        self.tick()
        node = Folder()
        folder.entries[last] = node
        self.pending.append(Entry((folder,), (last,), node, "add"))

    def remove_dir(self, name: str) -> None:
        folder, last = self._folder(name)
        node = folder.entries[last]
        if not isinstance(node, Folder) or node.entries:
            raise OSError(errno.ENOTEMPTY, "not empty", name)
        self.tick()
        del folder.entries[last]
        self.pending.append(Entry((folder,), (last,), node, "del"))

    def unlink(self, name: str) -> None:
        folder, last = self._folder(name)
        if last not in folder.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        self.tick()
        node = folder.entries.pop(last)
        self.pending.append(Entry((folder,), (last,), node, "del"))

    def rename(self, old: str, new: str) -> None:
        folder, last = self._folder(old)
        target, name = self._folder(new)
        if last not in folder.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self.tick()
        node = folder.entries.pop(last)
        entry = Entry((folder, target), (last, name), node, "ren")
        entry.replaced = target.entries.get(name)
        target.entries[name] = node
        self.pending.append(entry)

    def sync_dir(self, name: str) -> None:
        folder = self._node(name)
        if not isinstance(folder, Folder):
            raise FileNotFoundError(errno.ENOENT, "no such directory", name)
        if self.before_sync():
            raise OSError(
                errno.EIO, "sync failed"
            )  # Names are not pages: they are still to be written.
        self.pending = [entry for entry in self.pending if folder not in entry.folders]

    def sync_all(self) -> None:
        is_failing = self.before_sync()
        for inode in self.inodes():
            if is_failing:
                inode.fail(self.rng)
            else:
                inode.sync()
        if is_failing:
            raise OSError(errno.EIO, "sync failed")
        self.pending.clear()

    def free_bytes(self) -> int:
        if self.capacity is None:
            return 1 << 40
        return self.capacity - self.used_bytes()

    def used_bytes(self) -> int:
        return sum(inode.held() for inode in self.inodes(with_unlinked=False))

    def boot_id(self) -> UUID:
        return self._boot

    def new_id(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128) | 1)
