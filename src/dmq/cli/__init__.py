"""The command line: `dmq`, for people and for the scripts that people write.

Owns words, tables, exit codes and the way settings reach a command. Everything that talks to a
cluster does so with librdkafka, as any client would, so the commands work on any Kafka cluster.
Never reaches into a running broker; `up` and `serve` start one in this process and step aside.

`main.py` is the way in. One module per command; commands are imported only when they run.
"""
