"""Machines: what records mean. Commands make records, and only records change state.

    machine.py      the Machine protocol: handle(command, now) → Outcome, apply(record)
    records.py      records of the cluster machine: keyed, versioned, readable
    commands.py     what the cluster machine can be asked
    codec.py        commands and answers as bytes, for the way to the metadata leader
    state.py        what the cluster knows: brokers, topics, placements, configs, features
    brokers.py      registering and unregistering brokers
    placement.py    which brokers get the replicas of a new partition
    topics.py       creating and deleting topics, adding partitions
    reassignments.py  moving partitions to other brokers
    targets.py      what all this wants of Raft groups: who shall vote
    planning.py     plans for moving replicas, for any Kafka cluster
    configs.py      altering configs
    cluster.py      the cluster machine itself

Pure: no clock, no dice, no disk. What must be drawn by lot (topic ids) comes in with the command.
The broker's host appends the records, applies them, and lets the answer go when they are committed.
"""
