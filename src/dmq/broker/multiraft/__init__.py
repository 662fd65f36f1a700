"""Many Raft groups on one broker: one turn, one sync, one frame per peer for all of them.

    node.py      GroupNode: all replicas, the turn; the seam that a runtime or a simulator drives
    turn.py      a turn under way, and how much a turn does at once
    replica.py   one replicated partition: its verbs, and who waits for it
    driven.py    its base: the log and the Raft core, driven as the core's contract asks
    registry.py  groups by every name, their logs, and the memory of replicas that left
    links.py     one session per peer: hello, heartbeats, who is suspect, whose lease stands
    tables.py    who leads what, as digests and as lists
    talk.py      heartbeats, and tables where they differ
    agenda.py    which groups must be looked at, and when
    sending.py   appends on their way: pieces of logs, packed into frames, bounded per peer
    cargo.py     record bytes between two logs: read, checked, fitted
    waiting.py   acknowledgements and fetches that wait for a log
    newest.py    reads that wait until it is known that nobody else leads
    handing.py   leaderships handed over: slow disks, orderly ends
    repair.py    bad bytes of a log, fetched again from a replica that has them
    bad_range.py one such range: where it begins, found in slices, and who was asked for it
    frames.py    what travels between brokers; codec.py: the same as bytes

No clock, no socket, no thread, no dice of its own: events in, frames out.
"""
