"""The only layer that touches the disk: one journal for all logs, segments beside it.

    store.py      the facade: open, create, drop, the turn (turn.py), jobs, close
    log.py        one partition's log: what its caller has said, what may be promised
    layout.py     its segments, and what a turn makes of staged operations
    reading.py    reads of a log: file slices, batches by timestamp
    segment.py    one .log file with its sparse indexes (index.py)
    journal.py    the write-ahead journal: format, writer, reader (items.py: what a record says)
    recovery.py   what the journal says (replay.py, image.py), made true in the files (restore.py)
    cleaner.py    which logs to flush, when; frees journal files
    quarantine.py where dropped logs wait, and lost+found
    meta.py       who this data directory is
    files.py      the operating system; nothing else here calls it

Knows no clock, no thread, no loop: `now` is passed in, blocking calls are `Turn.sync` and
`Job.run`, which the runtime calls in a worker thread.
"""
