"""Measures dmq next to the machine's ceiling and next to Apache Kafka, in one run.

`python -m bench --help`. The load always comes from other processes; every system gets the same
client, the same bytes and the same disk, in turns (A B C A B C), because machines are noisy.
Never part of the product: nothing under `src/` imports this package, and this package imports
nothing of `dmq`: the broker under test is a process with a port.
"""
