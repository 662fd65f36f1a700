"""Whole brokers in a simulated cluster: the metadata are a Raft group of theirs, and no oracle's.

world.py       the run: founding, load and faults, healing, and what must be true at the end
process.py     one broker, put together and driven as the runtime does
clients.py     who writes and reads
operators.py   who creates, moves, deletes and elects
truths.py      what was promised to them, and what every broker must agree on
majorities.py  a majority is healed, the rest is not: what has a quorum must go on
demands.py     what many seeds together must have visited
mutants.py     rules broken on purpose
"""
