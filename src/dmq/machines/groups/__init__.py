"""Consumer groups and committed offsets: the machine of a partition of `__consumer_offsets`.

    machine.py              the machine itself, and what its host must do
    outcome.py              what comes back: answers now, answers later, records
    facts.py                what one record says; the codec that makes bytes of it is handed in
    state.py                what the log says: the last fact of every key
    context.py              that, and what only the leader knows
    work.py, timers.py      one call being worked off; deadlines by name
    surroundings.py         what is read of the broker: topics, configs, limits

    commands.py             what classic members and admins ask
    classic_group.py        a classic group: states, members, who waits
    joining.py              JoinGroup
    membership.py           SyncGroup, Heartbeat, LeaveGroup
    rebalancing.py          from one generation to the next
    consumer_protocol.py    the bytes that consumers put into the classic protocol

    consumer_commands.py    what members of the consumer protocol (KIP-848) ask
    consumer_group.py       a consumer group: epochs, members, targets, who has what
    consumer_heartbeats.py  ConsumerGroupHeartbeat
    consumer_changes.py     epochs and targets made, members removed
    consumer_describing.py  ConsumerGroupDescribe
    reconciling.py          a member's way to its target
    assignors.py            uniform, sticky, range
    patterns.py             topics by regular expression, in linear time
    migration.py            between classic and consumer groups
    classic_members.py      classic members of a consumer group

    offset_commands.py      what is asked about offsets
    offsets.py              committed offsets, and those of open transactions
    offset_rules.py         who may commit, fetch and forget them; expiry
    group_rules.py          describing, listing, deleting groups

Pure: no clock, no dice, no disk.
"""
