"""The `meta` file: who this data directory is. Written once or twice in a directory's life.

Text for people, one `name=value` per line, the last line a crc of the rest. Replaced by
temporary, sync, rename, sync of the directory. Called by store.
"""

from dataclasses import dataclass, replace
from uuid import UUID

from crc32c import crc32c

from dmq.errors import CorruptError
from dmq.storage.files import Files

NAME = "meta"
_TEMPORARY = "meta.new"
VERSION = 2
"""2: each batch of a log begins where the one before it ends. Compacted logs of 1 have holes, which
can't be told from rotten offsets; no release wrote them."""


@dataclass(frozen=True, slots=True)
class Meta:
    """Identity of a data directory; cluster and node are unknown until the broker is told."""

    directory_id: UUID
    cluster_id: str | None = None
    node_id: int | None = None
    version: int = VERSION

    def identified(self, cluster_id: str, node_id: int) -> "Meta":
        """With cluster and node set. Raises CorruptError if it belongs to others."""
        for name, ours, theirs in (
            ("cluster", self.cluster_id, cluster_id),
            ("node", self.node_id, node_id),
        ):
            if ours is not None and ours != theirs:
                raise CorruptError(f"this data directory belongs to {name} {ours}, not to {theirs}")
        return replace(self, cluster_id=cluster_id, node_id=node_id)


def encode(meta: Meta) -> bytes:
    lines = [f"version={meta.version}", f"directory.id={meta.directory_id}"]
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    if meta.node_id is not None:
        lines.append(f"node.id={meta.node_id}")
    text = "".join(f"{line}\n" for line in lines).encode()
    return text + f"crc={crc32c(text):08x}\n".encode()


def decode(raw: bytes) -> Meta:
    """Raises CorruptError."""
    text, _, last = raw.rstrip(b"\n").rpartition(b"\n")
    text += b"\n"
    if last != f"crc={crc32c(text):08x}".encode():
        raise CorruptError("the meta file is damaged")
    values = dict(line.split("=", 1) for line in text.decode().splitlines())
    version = int(values["version"])
    if version > VERSION:
        raise CorruptError(f"data format {version} is newer than this dmq ({VERSION})")
    if version < VERSION:
        raise CorruptError(
            f"data format {version} is of an unreleased dmq and can't be read any more: "
            f"begin with an empty data directory (this dmq writes format {VERSION})"
        )
    node_id = values.get("node.id")
    return Meta(
        directory_id=UUID(values["directory.id"]),
        cluster_id=values.get("cluster.id"),
        node_id=None if node_id is None else int(node_id),
        version=version,
    )


def load(files: Files) -> Meta | None:
    """None if this directory has none yet. Raises CorruptError."""
    if not files.exists(NAME):
        return None
    file = files.open(NAME)
    return decode(file.read_at(0, file.size()))


def save(files: Files, meta: Meta) -> None:
    file = files.open(_TEMPORARY, create=True)
    file.cut(0)
    file.write_at(0, [encode(meta)])
    file.sync()
    files.rename(_TEMPORARY, NAME)
    files.sync_dir(".")
