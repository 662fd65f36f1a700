"""The transaction coordinator: one machine per partition of `__transaction_state`.

    facts.py         what a record says: a transactional id and the transaction that it is in
    commands.py      what the machine can be asked, and its answers
    state.py         all transactional ids of one partition, and who is at what
    initialising.py  InitProducerId: ids, epochs, fencing
    adding.py        partitions of a transaction: added, or only vouched for
    ending.py        commit, abort, timeout, and what is left to write
    looking.py       DescribeTransactions, ListTransactions
    machine.py       the machine itself

    states           Empty ──────────────┬─ add partitions ─→ Ongoing
                     CompleteCommit ─────┤                    Ongoing ── commit ─→ PrepareCommit
                     CompleteAbort ──────┘                    Ongoing ── abort, timeout, another
                     Prepare… ── all markers written ─→ Complete…        producer ─→ PrepareAbort
                     Empty, Complete… ── init ─→ Empty        ── idle for long ─→ gone (Dead)

A decision is a `Prepare…` record: once it is committed, the markers go out, and if this coordinator
dies the next one finds the record and sends them again. Markers are an **output**: answers carry
them, so they leave the machine when what they rest on is committed; that they are written comes back
as a command. Every answer that refuses is a KafkaError.
"""
