"""The simulator's second kind of world: coordinators, and the clients that rely on them.

peers.py       calls and casts between brokers, over the simulated network
backend.py     what a broker runs on its node: partitions with producers, leaders, coordinators
scripts.py     clients as generators: ask, wait, go on
producers.py   idempotent and transactional producers
members.py     members of groups, of both protocols; committed offsets
readers.py     readers of committed transactions
chronicle.py   what the logs say once it is committed, in their order: the source of truth
checkers.py    the promises, one class each
world.py       all of it, in one run
"""
