"""All groups of this broker, and the turn that serves them together: the seam of the cluster.

    node = GroupNode(store, cluster_id="…", node_id=1, dice=Random(7), now=now)
    node.hello                                  what a new connection says first
    node.connected(now, hello, session)         a session began (ProtocolError: close it)
    node.closed(now, peer, session)             its connection ended
    node.refused(now, peer)                     nobody listens there any more
    node.receive(now, peer, session, frame)     (ProtocolError: close it)
    node.tick(now)                              at node.next_deadline(), early and late is fine
    node.outgoing(now)                          frames that may leave now; after any input

    turn = node.begin_turn(now)                 None: nothing to do, or one is under way
    send(turn.frames_now)                       appends only: they promise nothing of ours
    if turn.needs_sync: turn.sync()             blocking, in a worker
    send(node.end_turn(now, turn))              votes, answers, heartbeats

After every input call `begin_turn` unless a turn is under way; after `end_turn`, again, until it gives
None. While a sync is under way call `outgoing` after inputs: heartbeats must not wait for a slow disk.
An `Outgoing` leaves in its session or never. Numbers of sessions are the caller's: they rise for each
peer while this process lives; the two ends need not agree on them. `store.maintain` is the caller's as
before; the store's `idle_deadline` is part of `next_deadline`.

A peer is named by its `Voter`: broker id and directory id, as in its hello.

Work is bounded by counts, not by time: elections and changed peers per turn, bytes per frame and peer;
what is left waits in its order. Idle groups cost nothing: what travels is a heartbeat per peer.
Deterministic: no clock, no set is iterated, dice are handed in. Raises FatalStorageError if the process
must stop.
"""

from collections.abc import Callable
from uuid import UUID

from dmq.broker.multiraft import repair
from dmq.broker.multiraft.agenda import Agenda
from dmq.broker.multiraft.cargo import RotError, Sight
from dmq.broker.multiraft.driven import GroupSettings
from dmq.broker.multiraft.frames import (
    Frame,
    GroupKey,
    GroupMessage,
    Hello,
    Outgoing,
    RangeReply,
    RangeRequest,
    Table,
)
from dmq.broker.multiraft.handing import DiskWatch, Farewell
from dmq.broker.multiraft.links import PROTOCOL_MAX, PROTOCOL_MIN, Link, PeerLinks
from dmq.broker.multiraft.newest import Read, Reads
from dmq.broker.multiraft.registry import Registry
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.sending import Sender, forgotten, ground, landed
from dmq.broker.multiraft.tables import Tables
from dmq.broker.multiraft.talk import Talk
from dmq.broker.multiraft.turn import GroupTurn, NodeSettings
from dmq.broker.multiraft.waiting import OnAppended
from dmq.broker.timers import Timers
from dmq.errors import ErrorCode, StorageError
from dmq.raft.messages import Ack, Append, Nack, PreVote, Reset, Vote
from dmq.raft.settings import Dice, RaftSettings
from dmq.storage.reading import FileSlice, offset_at
from dmq.storage.store import Store
from dmq.storage.turn import Turn
from dmq.types import Voter


class GroupNode:
    """See the module."""

    def __init__(
        self,
        store: Store,
        *,
        cluster_id: str,
        node_id: int,
        dice: Dice,
        now: int,
        raft: RaftSettings | None = None,
        settings: NodeSettings | None = None,
    ) -> None:
        self.store = store
        self.settings = settings or NodeSettings()
        self._raft = raft or RaftSettings()
        self._dice = dice
        self.me = Voter(node_id, store.directory_id)
        # The journal's number rises with every start, and is durable.
        versions = (PROTOCOL_MIN, PROTOCOL_MAX)
        self.hello = Hello(cluster_id, self.me, store.seq, *versions)
        self.links = PeerLinks(self.hello, self.settings.links, now)
        self.tables = Tables()
        self.timers = Timers()
        self.wake: Callable[[], None] = lambda: None
        """Called when there is work for a turn; the runtime sets it."""
        self.on_look: Callable[[Replica, bool], None] = lambda replica, has_turned: None
        """Called after a replica changed, and whether it began or ceased to lead, or was elected
        anew; for whoever keeps track of leaders."""
        self.counts: dict[str, int] = {}
        """How often rare things happened, for people and for tests."""
        self._sender = Sender(self.links, self.settings.sending)
        self._talk = Talk(
            self.links, self.tables, self._sender, self.settings.exchange_ms, self.count
        )
        self._reads = Reads(self.links, self.settings.read_patience_ms, self.count)
        self._agenda = Agenda(self.settings.elections_max, self.settings.changes_max)
        self._groups = Registry(store)
        self._dirty: dict[Replica, None] = {}
        self._unborn: list[Replica] = []
        self._waiting: dict[Replica, None] = {}
        self._turn: GroupTurn | None = None
        self._beat_at = now
        self._ticked_at = now
        self._sweep_at: int | None = None
        self._vote_from = now + self.settings.links.lease_ms
        """Until then a leader's lease may rest on what a former life of ours answered."""
        self._held_votes: list[tuple[Voter, int, GroupMessage]] = []
        self._disk = DiskWatch(
            self.settings.slow_sync_ms, self.settings.stuck_sync_ms, lambda: store.is_full
        )
        self._repairs = repair.Repairs(store, self.settings.repair)
        self._farewell: Farewell | None = None

    def __repr__(self) -> str:
        return f"<GroupNode {self.me.node} groups={len(self._groups.by_uid)}>"

    # ---- groups

    @property
    def replicas(self) -> dict[int, Replica]:
        """By uid of the log."""
        return self._groups.by_uid

    def replica(self, topic_id: UUID, partition: int) -> Replica | None:
        return self._groups.by_key.get(GroupKey(topic_id, partition))

    @property
    def unclaimed(self) -> list[GroupKey]:
        """Logs on disk that no group was made for yet."""
        return list(self._groups.unclaimed)

    def create_group(
        self,
        now: int,
        topic_id: UUID,
        partition: int,
        voters: tuple[Voter, ...],
        settings: GroupSettings | None = None,
        *,
        is_founding: bool = True,
        target: tuple[Voter, ...] | None = None,
        observers: tuple[Voter, ...] = (),
    ) -> Replica:
        """Serve a group, with the log that is on disk or with a new one.

        `voters` are those that the metadata gave it when it was founded. A new log begins as
        theirs if we are among them and the group `is_founding`: only a broker that can't have had
        this partition before may say so. Otherwise it begins empty, as a learner's. A replica that
        was here before and left keeps its word: its epoch and vote stand, and it gives no other
        vote until it has caught up.
        """
        key = GroupKey(topic_id, partition)
        settings = settings or GroupSettings()
        log, memory, is_new, has_staged = self._groups.claim(
            key, self.me, voters, settings, is_founding=is_founding
        )
        replica = Replica(
            log,
            settings,
            self.links.raft,
            self._raft,
            self._dice,
            is_fresh=is_new and not memory,
            memory=memory,
            host=self,
        )
        replica.is_unborn = is_new
        replica.has_staged = has_staged
        if is_new:
            self._unborn.append(replica)
        self._groups.add(replica)
        if log.is_damaged:
            self._repairs.add(replica)
        replica.start(now)
        if target is not None or observers:
            replica.set_target(target or (), now, observers)
        self.touched(replica, now)
        return replica

    def drop_group(
        self,
        topic_id: UUID,
        partition: int,
        code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ) -> None:
        """A committed record says that the topic is gone; its files go to quarantine."""
        key = GroupKey(topic_id, partition)
        self._remove(key, code)
        self._groups.drop_logs(key)
        self.wake()

    def leave_group(
        self,
        topic_id: UUID,
        partition: int,
        code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT,
    ) -> None:
        """A committed change of voters left us out: the records go, the promises stay.

        What becomes of appends that wait is not known here: the others may have committed them.
        """
        key = GroupKey(topic_id, partition)
        self._remove(key, code)
        self._groups.park(key)
        self.wake()

    def _remove(self, key: GroupKey, code: ErrorCode) -> None:
        replica = self._groups.by_key.get(key)
        if replica is None:
            return
        ground(replica, self.links)
        self.tables.update(replica, None)
        self._groups.remove(replica)
        self._agenda.forget(replica)
        for known in (self._dirty, self._waiting, self._sender.waiting):
            known.pop(replica, None)
        self._repairs.forget(replica)
        replica.retire(code)
        self._reads.retire(replica, code)

    # ---- connections

    def connected(self, now: int, hello: Hello, session: int) -> None:
        """A session began with this peer. Raises ProtocolError if it must not."""
        self._enter(now)
        link = self.links.connected(hello, session, now)
        self._sender.forget(link.peer)
        self._tell_peers()
        self._talk.beat(link, self._disk.age_ms(now), now)
        self._talk.introduce(link, now)

    def closed(self, now: int, peer: Voter, session: int) -> None:
        self._enter(now)
        if self.links.closed(peer, session):
            self._sender.forget(peer)
            self._tell_peers()

    def refused(self, now: int, peer: Voter) -> None:
        self._enter(now)
        self.links.refused(peer)
        self._tell_peers()
        self._work(now)

    def receive(self, now: int, peer: Voter, session: int, frame: Frame) -> None:
        """Raises ProtocolError if the peer broke the protocol: end its session."""
        self._enter(now)
        link = self.links.heard(peer, session, now)
        if link is None:
            return
        self._tell_peers()
        if frame.table is not None:
            self._on_table(link, frame.table, now)
        if frame.heartbeat is not None:
            self._talk.on_heartbeat(link, frame.heartbeat, now)
            if self._reads:
                self._reads.renewed()
        for message in frame.messages:
            self._on_message(link, message, now)

    def _on_message(self, link: Link, what: GroupMessage, now: int) -> None:
        replica = self._groups.by_key.get(what.key)
        if replica is None:
            return
        message = what.message
        if isinstance(message, RangeRequest):
            self._repairs.serve(replica, link, message, self._sender, now)
            return
        if isinstance(message, RangeReply):
            if self._repairs.take(replica, link.peer, message, what.cargo):
                replica.repaired(now)
            return
        if self._must_wait(replica, message, now):
            self._held_votes.append((link.peer, link.session, what))
            return
        if isinstance(message, Ack | Nack):
            if what.tag != replica.our_tags.get(link.peer):
                return  # Of a former stay of this peer in the group.
            if isinstance(message, Ack):
                landed(replica, link, message.end)
            else:
                forgotten(replica, link)
        elif isinstance(message, Append | Reset):
            replica.their_tags[link.peer] = what.tag
        self._tell(replica, now)
        replica.step(link.peer, link.session, message, what.cargo, now)
        self.touched(replica, now)

    def _must_wait(self, replica: Replica, message: object, now: int) -> bool:
        """A leader's lease may rest on us, though we were started again and know nothing of it."""
        if now >= self._vote_from or replica.is_fresh:
            return False
        if isinstance(message, PreVote):
            return True
        return isinstance(message, Vote) and not message.is_transfer

    # ---- who leads what

    def _on_table(self, link: Link, table: Table, now: int) -> None:
        if link.greet_until is not None:
            self.links.greeted(link)
            self._tell_peers()
        for replica, epoch in self._talk.on_table(link, table, self._groups.by_key.get, now):
            self._tell(replica, now)
            if epoch is None:
                replica.disclaimed(link.peer, now)
            else:
                replica.claimed(link.peer, epoch, now)
            self.touched(replica, now)

    def has_lease(self, replica: Replica, now: int) -> bool:
        """Whether no other leader of this group can exist (reads that must be the newest)."""
        core = replica.core
        return core.may_lease and self.links.has_lease(core.voters, replica.led_at, now)

    def is_newest(self, replica: Replica, now: int) -> bool:
        """Whether what this replica knows now is known to be the newest; see newest.py."""
        self._enter(now)
        return self._reads.is_newest(replica, now)

    def when_newest(
        self, replica: Replica, epoch: int, asked_at: int, callback: OnAppended
    ) -> None:
        """Call when what this leader of `epoch` knew at `asked_at` is known to have been the newest
        then, at once if it is; with an error if it leads no more."""
        self._enter(asked_at)
        self._reads.ask(replica, Read(epoch, asked_at, callback))

    # ---- telling groups

    def _tell_peers(self) -> None:
        """Note which groups must hear of the peers that changed."""
        for peer in self.links.take_changed():
            for replica in self._groups.by_peer.get(peer, ()):
                self._agenda.tell(replica, peer)

    def _tell(self, replica: Replica, now: int) -> None:
        """Before any other input: what its peers do."""
        for peer in self._agenda.peers_of(replica):
            replica.peer_changed(peer, now)

    def touched(self, replica: Replica, now: int) -> None:
        """After every input of a replica: what follows from it for the node."""
        self._look(replica, now)
        self._dirty[replica] = None
        self.wake()

    def appended(self, replica: Replica, now: int) -> None:
        """After an append of its own a leader is as it was, but for what it has to say."""
        self._dirty[replica] = None
        self._waiting[replica] = None
        if self._sweep_at is None:
            self._sweep_at = now + self.settings.sweep_ms
        self._sender.waiting[replica] = None
        self.wake()

    def _look(self, replica: Replica, now: int) -> None:
        """See what changed: whom it leads or follows, who belongs to it, when it must be served."""
        members = replica.members()
        if members != replica.known_members:
            ground(replica, self.links, members)  # The answers of those who left carry an old tag.
            self._groups.set_members(replica, members)
        has_turned = self._look_at_stance(replica, now)
        self.on_look(replica, has_turned)
        self._reads.look(replica)
        self._agenda.set_timer(replica, replica.core.deadline)
        if replica.has_waiting:
            self._waiting[replica] = None
            if self._sweep_at is None:
                self._sweep_at = now + self.settings.sweep_ms
        if replica.is_leader:
            self._sender.waiting[replica] = None

    def _look_at_stance(self, replica: Replica, now: int) -> bool:
        before, stance = replica.stance, replica.stance_now()
        if stance == before:
            return False
        if before is not None and before[2] and not replica.is_leader:
            replica.left_at = now
            ground(replica, self.links)
        if stance is not None and stance[2] and (before is None or before[::2] != stance[::2]):
            replica.led_at = now
        self.tables.update(replica, stance)
        return True

    def damaged(self, replica: Replica) -> None:
        self._repairs.add(replica)

    def lost(self, replica: Replica) -> None:
        self._repairs.give_up(replica)

    def count(self, event: str) -> None:
        self.counts[event] = self.counts.get(event, 0) + 1

    # ---- time

    def _enter(self, now: int) -> None:
        """First in every input: whether we were stopped ourselves."""
        if self.links.enter(now):
            self._disk.paused(now)
            self.count("pause")

    def tick(self, now: int) -> None:
        """Time passed. Raises FatalStorageError if a sync does not return."""
        self._enter(now)
        self._ticked_at = now
        self.timers.run(now)
        if now >= self._beat_at:
            self._beat_at = now + self.settings.links.heartbeat_ms
            for link in self.links.by_peer.values():
                if link.is_open:
                    self._talk.beat(link, self._disk.age_ms(now), now)
            self._reads.expire(now)
        self._disk.look(now, self.links, self._groups.by_uid.values())
        if self.links.may_judge(now):
            self.links.tick(now)
            self._tell_peers()
            self._work(now)
        if self._sweep_at is not None and now >= self._sweep_at:
            self._sweep(now)

    def _work(self, now: int) -> None:
        """Tell groups of changed peers and serve their timers, as many as a turn may."""
        while (told := self._agenda.take_told()) is not None:
            self._tell(told, now)
            self.touched(told, now)
        if now >= self._vote_from and self._held_votes:
            self._answer_held_votes(now)
        while (due := self._agenda.take_due(now)) is not None:
            if self._may_stand(due, now):
                self._tell(due, now)
                due.tick(now)
                self.touched(due, now)
            else:
                self._agenda.set_timer(due, self._vote_from)

    def _answer_held_votes(self, now: int) -> None:
        held, self._held_votes = self._held_votes, []
        for peer, session, what in held:
            link = self.links.open_link(peer)
            if link is not None and link.session == session:
                self._on_message(link, what, now)

    def _may_stand(self, replica: Replica, now: int) -> bool:
        """To stand is to vote for ourselves; see _must_wait."""
        return now >= self._vote_from or replica.is_fresh or replica.core.voters == (self.me,)

    def _sweep(self, now: int) -> None:
        for replica in list(self._waiting):
            replica.sweep(now)
            if not replica.has_waiting:
                del self._waiting[replica]
        self._sweep_at = now + self.settings.sweep_ms if self._waiting else None

    def next_deadline(self) -> int:
        """When `tick` and then `begin_turn` must be called at the latest."""
        moments = [self._beat_at]
        for moment in (self.links.deadline(), self.timers.next_deadline(), self._sweep_at):
            if moment is not None:
                moments.append(moment)
        judge_from = self.links.judge_from
        if self._held_votes:
            moments.append(max(self._vote_from, judge_from))
        due = self._agenda.deadline()
        if due is not None:
            moments.append(max(due, judge_from))
        if self._turn is None:
            for moment in (self.store.idle_deadline(), self._repairs.deadline()):
                if moment is not None:
                    moments.append(moment)
        # What needs a turn rather than a tick must not make the driver call without end.
        return max(min(moments), self._ticked_at + 1)

    @property
    def has_waiting(self) -> bool:
        """Whether anybody waits for an append."""
        return any(replica.has_waiting for replica in self._waiting)

    # ---- the turn

    def outgoing(self, now: int) -> list[Outgoing]:
        """Frames that may leave now, turn or no turn: heartbeats, tables, begun records."""
        self._sender.push(now)
        return [*self._sender.take_control(), *self._sender.take_bulk()]

    def begin_turn(self, now: int) -> GroupTurn | None:
        """Write all that is staged; None if a turn is under way or there is nothing to do."""
        if self._turn is not None:
            return None
        self._enter(now)
        if self.links.may_judge(now):
            self._work(now)
        self._agenda.next_turn()
        self._note_damaged(now)
        for replica in self._repairs.ask(self.links, self._sender, now):
            replica.repaired(now)
        for replica in self._repairs.take_lost():
            self._begin_again(replica, now)
        store_turn = self.store.begin_turn(now)
        turn = GroupTurn(store_turn)
        if store_turn is not None:
            self._note_taken(store_turn, now)
        self._make_ready(turn, now)
        turn.frames_now = self.outgoing(now)
        if store_turn is None and not turn.replicas and not turn.frames_now:
            return None
        self._turn = turn
        if turn.needs_sync:
            self._disk.began(now)
        return turn

    def _note_damaged(self, now: int) -> None:
        """Readers found bad bytes: an idle leader would serve nobody until the next message."""
        for log in self.store.take_damaged():
            replica = self._groups.by_uid.get(log.uid)
            if replica is not None:
                replica.note_damage(StorageError("found by a reader"), now)

    def unreadable(self, piece: FileSlice) -> None:
        """The disk does not give these bytes of a log back, which somebody sends to a client. If nobody
        else has them either, the rest of the log is served on."""
        replica = self._groups.by_uid.get(piece.uid)
        if replica is None or replica.log.is_damaged or replica.core.voters == (self.me,):
            return
        try:
            offset = offset_at(replica.log, piece)
        except (StorageError, OSError):  # The index can't be read either: more of it may be bad.
            offset = piece.segment
        if offset is not None:
            replica.found_rot(RotError(offset, "the disk gives it not back"), Sight.of(replica.log))

    def _begin_again(self, replica: Replica, now: int) -> None:
        """Between turns: what is begun must be the log that the turn's end speaks of."""
        replica.is_unborn = True
        self._unborn.append(replica)
        self._groups.begin_again(replica, now)

    def _note_taken(self, store_turn: Turn, now: int) -> None:
        for log in (*store_turn.logs, *store_turn.stable):
            replica = self._groups.by_uid.get(log.uid)
            if replica is not None and not log.staged_bytes:
                replica.has_staged = False
        for log in store_turn.released:
            replica = self._groups.by_uid.get(log.uid)
            if replica is not None:
                self._dirty[replica] = None  # It may acknowledge more when the turn has ended.
        self._unborn, unborn = [], self._unborn
        for replica in unborn:
            replica.is_unborn = False
        for refusal in store_turn.refused:
            replica = self._groups.by_uid.get(refusal.log.uid)
            if replica is not None:
                replica.refused(refusal.end, now)
                if replica.log.is_damaged:
                    replica.note_damage(refusal.error, now)
                else:
                    self._disk.refused(now)
                self.touched(replica, now)

    def _make_ready(self, turn: GroupTurn, now: int) -> None:
        dirty, self._dirty = self._dirty, {}
        for replica in dirty:
            if replica.has_staged or replica.is_unborn:
                self._dirty[replica] = None  # The store had no room for it: the next turn's.
                continue
            replica.core.ready(now)
            turn.replicas.append(replica)

    def end_turn(self, now: int, turn: GroupTurn) -> list[Outgoing]:
        """The turn is durable: what waited for it may leave."""
        assert turn is self._turn
        self._turn = None
        self._enter(now)
        if turn.store_turn is not None:
            self.store.end_turn(turn.store_turn, now)
        self._disk.ended(now)
        for replica in turn.replicas:
            if replica.is_retired:
                continue
            for envelope in replica.durable(now):
                self._sender.post(replica, envelope)
            if replica.memory and not replica.core.is_recovering:
                self._groups.forget_memory(replica)
                self.count("memory of a former stay")
            if replica.has_staged or replica.core.has_messages:
                self.touched(replica, now)
            else:
                self._look(replica, now)
        return self._sender.take_control()

    def hand_over_all(self, now: int) -> int:
        """Before an orderly end: give every group to another voter; how many have no other leader yet.

        Call again until that is 0 or patience ends.
        """
        if self._farewell is None:
            self._farewell = Farewell(self.links)
            self._disk.leave()
            self._beat_at = now  # Who leads next is to know that it need not give it back to us.
        return self._farewell.left(self._groups.by_uid.values(), now)
