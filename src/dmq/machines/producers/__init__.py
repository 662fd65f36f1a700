"""Producers of one partition: who wrote what last, what is a duplicate, what is still undecided.

    entries.py     what is known of one producer, and what a batch or a marker makes of it
    state.py       ProducerState: committed map, uncommitted batches, duplicates, last stable offset
    rules.py       what the leader refuses
    fences.py      a batch that failed is not overtaken by the producer's next
    aborted.py     the index of aborted transactions, which Fetch asks
    decided.py     DecidedTransactions: what a follower knows that serves readers of committed ones
    guards.py      leave to write into a transaction, asked of its coordinator (KIP-890)
    admission.py   both together: what a leader does with a batch of a transaction
    snapshot.py    the committed state as bytes, and back

How a partition calls `ProducerState`:

    leader      check(header) before the append; then appended(header, position) or failed(header)
    follower    appended(header, position) only: followers record, they don't judge
    both        committed(position) when the commit point moves; cut(position) when the log is cut;
                trim(log_start) when its start moves; reset() when it is replaced
    in a transaction: Admission.check, vouch and appended in the place of check and appended
    a marker    check_marker(...) on the leader, and the `Marker` is given with appended(...)
    Fetch       last_stable_offset(high_watermark), aborted(start, end)
    now, then   expire(now); snapshot(position), whose encode() may run beside the loop

    start       restore(ProducerSnapshot.decode(data)), then appended(...) for every batch of the log
                from the snapshot's position on, then committed(...)

Batches without a producer id pass through all of these with one comparison. Numbers and headers
only: no record is opened here, no clock is read, nothing is written.
"""
