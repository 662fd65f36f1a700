"""Settings of Apache Kafka that a dmq broker does not have, so that a Kafka file can be taken over.

IGNORED names tune machinery that is not here: they are accepted with a warning. REFUSED prefixes
promise protection or plug-ins that are not here: ignoring one of them would be a lie, so it is an
error. DIFFERENT are the settings that both have with another default or reach here, and why. Used by
`load.py`, `document.py` and the test that holds our tables against a real Kafka's.
"""

REFUSED_PREFIXES = (
    "ssl.",
    "sasl.",
    "listener.name.",
    "delegation.token.",
    "principal.",
    "security.",
    "remote.log.",
    "alter.config.policy.",
    "create.topic.policy.",
    "client.quota.callback.",
)

IGNORED = frozenset(
    """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds background.threads config.providers
    connection.failed.authentication.delay.ms connections.max.reauth.ms controlled.shutdown.enable
    controller.listener.names controller.quorum.append.linger.ms
    controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
    controller.quorum.retry.backoff.ms controller.quorum.voters controller.quota.window.num
    controller.quota.window.size.seconds controller.socket.timeout.ms cordoned.log.dirs
    delete.records.purgatory.purge.interval.requests early.start.listeners
    fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable
    group.coordinator.append.linger.ms group.coordinator.background.threads
    group.coordinator.cached.buffer.max.bytes group.coordinator.threads
    initial.broker.registration.timeout.ms kafka.metrics.polling.interval.secs
    kafka.metrics.reporters log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
    log.dir.failure.timeout.ms log.flush.offset.checkpoint.interval.ms
    log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms metadata.log.dir
    metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
    metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
    metadata.max.retention.bytes metadata.max.retention.ms metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms num.recovery.threads.per.data.dir
    num.replica.alter.log.dirs.threads num.replica.fetchers offsets.load.buffer.size
    offsets.topic.compression.codec process.roles producer.purgatory.purge.interval.requests
    quota.window.num quota.window.size.seconds remote.fetch.max.wait.ms
    remote.list.offsets.request.timeout.ms replica.fetch.backoff.ms replica.fetch.max.bytes
    replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
    replica.high.watermark.checkpoint.interval.ms
    replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
    replication.quota.window.size.seconds share.coordinator.append.linger.ms
    share.coordinator.cached.buffer.max.bytes share.coordinator.load.buffer.size
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.threads share.fetch.purgatory.purge.interval.requests
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    transaction.state.log.load.buffer.size
    """.split()  # noqa: SIM905  One name per line would be a hundred lines.
)

DIFFERENT = {
    "default.replication.factor": "-1 chooses by the size of the cluster",
    "flush.ms": "`async` topics are synced by the clock; Kafka leaves it to the kernel",
    "listener.security.protocol.map": "fixed at start",
    "listeners": "fixed at start; without authentication only this machine is let in",
    "log.dirs": "a broker needs one",
    "log.flush.interval.ms": "as `flush.ms`",
    "max.connections": "everything has a bound",
    "node.id": "a first broker needs no file",
    "num.io.threads": "one event loop",
    "num.network.threads": "one event loop",
    "offsets.topic.replication.factor": "-1 chooses by the size of the cluster",
    "queued.max.request.bytes": "everything has a bound",
    "replica.selector.class": "consumers that say where they are read from a replica there",
    "share.coordinator.state.topic.replication.factor": "-1 chooses by the size of the cluster",
    "socket.listen.backlog.size": "bursts of new connections are cheap to queue",
    "socket.receive.buffer.bytes": "the system grows it as needed",
    "socket.send.buffer.bytes": "the system grows it as needed",
    "transaction.state.log.replication.factor": "-1 chooses by the size of the cluster",
}
