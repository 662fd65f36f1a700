"""Scripts that lead straight to a rare state, where one rule keeps a promise and nothing else does.

A random walk meets these in one run of thousands. Each passes with the real core; each fails when its
rule is broken (see raft_mutants.py).
"""

from scenarios.raft_cluster import Cluster, Flight, Host

from dmq.raft.messages import Append


def _elect(cluster: Cluster, host: Host) -> None:
    cluster.connect_all()
    while not host.core.is_leader:  # The first attempt may only tell it of a newer epoch.
        cluster.stand(host)
        cluster.settle()


def _from(host: Host, *but_to: Host) -> object:
    """Appends of this host get lost, but those to a few."""
    allowed = {other.me for other in but_to}

    def drops(flight: Flight) -> bool:
        to = flight.envelope.to
        is_append = isinstance(flight.envelope.message, Append)
        return is_append and flight.sender == host.me and to not in allowed

    return drops


def _is_empty(flight: Flight) -> bool:
    message = flight.envelope.message
    return isinstance(message, Append) and message.prev == message.end


def figure_8() -> None:
    """Raft §5.4.2: a position of an older epoch is on a majority and yet not safe (COMMIT)."""
    cluster = Cluster(5)
    one, two, three, _, five = cluster.hosts.values()
    _elect(cluster, one)
    cluster.drops = _from(one, two)
    one.produce(2)  # (a) On the first and the second.
    cluster.settle()
    cluster.crash(one)
    cluster.drops = _from(five)
    _elect(cluster, five)  # (b) The fifth leads and writes its mark, for itself only.
    cluster.crash(five)
    cluster.restart(one)
    cluster.stop_max = (
        1  # (c) The first leads again: an old record reaches the third, its mark none.
    )
    cluster.drops = _from(one, two, three)
    _elect(cluster, one)
    assert one.core.is_leader
    assert three.core.end == (1, 0, 1)
    shown = one.core.high_watermark
    cluster.crash(one)
    cluster.restart(five)
    cluster.stop_max, cluster.drops = None, _from(one)
    _elect(cluster, five)  # (d) The fifth has the greatest end and wipes the record out.
    assert five.core.is_leader
    assert shown == 0, "nothing of its own epoch was on a majority"
    cluster.check_logs()


def trim_at_an_uncommitted_mark() -> None:
    """The base must be committed: another leader may yet take the mark beside it away (TRIM)."""
    cluster = Cluster(5)
    one, two, three, four, _ = cluster.hosts.values()
    _elect(cluster, one)
    one.produce()
    cluster.settle()
    cluster.drops = lambda flight: flight.envelope.to == four.me and _is_empty(flight)
    one.core.request_log_start(1, cluster.now)
    one.stage()
    cluster.settle()
    assert two.core.log_start == 1
    assert four.core.log_start == 0, "it has the mark, but does not know that it is committed"
    assert four.core.end == two.core.end
    cluster.crash(one)
    cluster.drops = _from(two, four)
    _elect(cluster, two)  # Its mark reaches the fourth only, and at the offset that is trimmed to.
    assert two.core.is_leader
    assert four.core.log_start == 1
    assert four.core.end == two.core.end
    cluster.crash(two)
    cluster.restart(one)
    cluster.drops = lambda flight: False
    _elect(cluster, three)
    assert three.core.is_leader
    assert four.core.end == three.core.end
    cluster.check_logs()


def a_former_life_heals() -> None:
    """A message of an old session says what was enough for a former life (recovering voters)."""
    cluster = Cluster(3, is_async=True)
    one, two, three = cluster.hosts.values()
    _elect(cluster, one)
    one.produce()
    one.turn()
    old = next(f for f in cluster.net if f.envelope.to == two.me)
    cluster.settle()
    cluster.drops = lambda flight: three.me in (flight.sender, flight.envelope.to)
    one.produce()
    cluster.settle()
    assert one.core.high_watermark == 2, "the second one has acknowledged it"
    cluster.crash(two, keeps_data=0)  # A power cut takes all of its records.
    cluster.restart(two)
    cluster.drops = lambda flight: flight.sender == one.me and flight is not old
    cluster.connect_all()
    cluster.net.append(old)
    cluster.settle()
    cluster.crash(one)
    cluster.stand(three)
    cluster.settle()
    assert two.core.is_recovering
    assert not three.core.is_leader


def healed_too_soon() -> None:
    """What the leader has committed is less than what the group may have (recovering voters)."""
    cluster = Cluster(3, is_async=True)
    one, two, three = cluster.hosts.values()
    _elect(cluster, one)
    one.produce()
    cluster.settle()
    cluster.drops = lambda flight: three.me in (flight.sender, flight.envelope.to)
    one.produce()
    cluster.settle()
    assert one.core.high_watermark == 2
    cluster.crash(two, keeps_data=0)
    cluster.restart(two)
    cluster.stop_max = 1
    cluster.connect_all()
    cluster.settle()
    assert two.core.end == (1, 0, 1), "the leader brought it half of what it had"
    cluster.crash(one)
    cluster.drops = lambda flight: False
    cluster.stand(three)
    cluster.settle()
    assert not three.core.is_leader
    assert two.core.is_recovering


def a_voter_was_to_go() -> None:
    """Who was to leave went on with one that forgot it: the list without it is not all (VOTE)."""
    cluster = Cluster(3, is_async=True)
    one, two, three = cluster.hosts.values()
    _elect(cluster, one)
    one.produce()
    cluster.settle()
    cluster.drops = lambda flight: flight.sender == one.me
    one.set_target((one.me, two.me))
    one.turn()
    assert one.core.end == (1, 1, 1), "it took the third one out, as far as it knows"
    cluster.disconnect(one, two)
    cluster.disconnect(one, three)
    cluster.drops = lambda flight: False
    cluster.stand(three)
    three.produce()
    cluster.settle()
    three.produce()
    cluster.settle()
    assert three.core.high_watermark == 2, "the second one has acknowledged it"
    cluster.crash(two, keeps_data=0)
    cluster.restart(two)
    cluster.disconnect(two, three)
    cluster.connect(one, two)
    for _ in range(3):  # The first attempt may only tell it of a newer epoch.
        cluster.stand(one)
        cluster.settle()
    assert two.core.is_recovering
    assert not one.core.is_leader, "what the third one has is lost"


def the_only_voter_forgets() -> None:
    """What an only voter sends before its own vote is durable, it may send otherwise later (VOTE)."""
    cluster = Cluster(1, 1)
    one, two = cluster.hosts.values()
    for host in (one, two):
        host.set_target((one.me, two.me))
    _elect(cluster, one)
    assert two.core.end == one.core.end
    for _ in range(2):
        cluster.crash(one)
        cluster.restart(one)
        cluster.connect_all()
        cluster.settle()
        cluster.stand(one)
        one.produce()
        one.begin_turn()  # Appends may leave, the sync does not return.
        while cluster.net:
            cluster.deliver()
        two.turn()
    one.end_turn()
    cluster.settle()
    cluster.check_logs()


def an_heirs_disk_refuses() -> None:
    """Votes are asked for a log that the disk then refuses, while the others commit it (VOTE)."""
    cluster = Cluster(3)
    one, two, _ = cluster.hosts.values()
    _elect(cluster, one)
    one.produce()
    one.begin_turn()  # The record leaves before our own sync.
    while cluster.net:
        flight = cluster.deliver()
        if flight.envelope.to != two.me:
            cluster.hosts[flight.envelope.to.node].turn()
        one.turn()
    assert one.core.high_watermark == 1
    cluster.stand(two)  # Told to, by a leader that thought better of it.
    del two.log.data[:]
    two.refused()
    two.stage()
    cluster.settle()
    cluster.check_logs()
