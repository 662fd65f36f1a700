"""A data directory that changed its name because its journal is rotten: what an operator's word allows.

Who may have forgotten a promise must not vote under the name that gave it, so such a directory comes
back under a new id (storage/recovery.py), and only if somebody said so by its old one: each time anew.
The groups that it belongs to then replace one name by the other. If it was the metadata's only voter,
nobody is left to do that for them; a broker without a door for others is alone for sure, and goes on
with what it has. One with a door can't know: its own log may have forgotten that others came.
Called by the runtime at its start.
"""

import logging
from typing import NamedTuple
from uuid import UUID

from dmq.broker.multiraft.replica import Replica
from dmq.broker.service import Service
from dmq.errors import StorageError
from dmq.machines.commands import AllocateProducerIds
from dmq.machines.records import EPOCH_LEAP
from dmq.storage import meta
from dmq.storage.files import Files
from dmq.storage.store import Store, StoreSettings
from dmq.types import Voter

log = logging.getLogger("dmq.broker")


class Accepted(NamedTuple):
    """Losses that an operator knows of, and wants a broker to go on with."""

    rotten: UUID | None = None
    """The id of a directory that may change its name if its journal is rotten."""
    lost: frozenset[UUID] = frozenset()
    """The ids of directories that are gone for ever; see outliving.py."""


NOTHING_ACCEPTED = Accepted()
ID_BLOCKS_SKIPPED = 1000
"""More than can have been given out since the metadata's last record that is left."""


def open_store(files: Files, settings: StoreSettings, accepted: UUID | None, now: int) -> Store:
    """The store; under a new name if its journal is rotten and `accepted` is its name. Raises as
    `Store.open` does."""
    before = None if accepted is None else meta.load(files)
    is_named = before is not None and before.directory_id == accepted
    store = Store.open(files, settings, now=now, accept_rotten=is_named)
    if store.recovery.rotten is not None:
        log.warning(
            "the journal lost what it promised, and that is accepted: %s. The directory %s is %s from "
            "now on. The old journal is kept in lost+found. Partitions of which no other broker has a "
            "replica wait for `dmq partition recover` (--all)",
            store.recovery.rotten,
            accepted,
            store.directory_id,
        )
    elif accepted is not None:
        log.info("the journal is sound: there is nothing to accept")
    return store


def go_on_alone(metadata: Replica, accepted: UUID | None, now: int) -> bool:
    """Let a broker that is alone lead the metadata under its new name; False: it has none. Raises
    StorageError if it can't, for nobody else will."""
    if metadata.me in metadata.core.voters:
        return False
    former = _former(metadata)
    if former is None:
        raise StorageError(
            "this directory does not vote on its cluster's metadata, and without a door for other "
            "brokers (peer.listener) it finds nobody who does. If it was alone and its journal is "
            "damaged, the metadata are lost: restore a backup; or keep the directory aside for its "
            "records (logs/, lost+found/) and begin with an empty one"
        )
    if former.directory != accepted:
        raise StorageError(_only_voter(former))
    end = metadata.core.end
    log.warning(
        "the metadata go on with what is left of them, up to offset %d of epoch %d",
        end.offset,
        end.epoch,
    )
    metadata.ordered(metadata.me, metadata.core.epoch + EPOCH_LEAP, now)
    return True


def skip_producer_ids(service: Service) -> None:
    """The metadata may have forgotten which ids they gave out, and the logs still know these producers:
    the records of a new one with such an id could be taken for theirs."""
    for _ in range(ID_BLOCKS_SKIPPED):
        service.submit(AllocateProducerIds(service.identity.node_id, service.broker_epoch))


def check_others_vote(metadata: Replica) -> None:
    """After a while without a leader of the metadata. Raises StorageError if there can't be one."""
    former = _former(metadata)
    if former is not None:
        raise StorageError(_only_voter(former))


def _former(metadata: Replica) -> Voter | None:
    """This broker's old name, if it is the only voter of the metadata as far as we know."""
    voters = metadata.core.voters
    is_old = len(voters) == 1 and voters[0].node == metadata.me.node and voters[0] != metadata.me
    return voters[0] if is_old else None


def _only_voter(former: Voter) -> str:
    return (
        f"as far as this directory knows, its old name {former.directory} was the only voter of the "
        "cluster's metadata, so nobody can elect a leader of them. If no other broker votes on them (a "
        "cluster of one or two brokers), start this one once without a door for others (without "
        "--bootstrap, --join, --peers and peer.listener) and with `dmq serve --accept-rotten "
        f"{former.directory}`: it goes on with the metadata that it has; then start it as before. "
        "Else start the others first"
    )
