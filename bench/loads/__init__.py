"""The load generators: each module is a process that loads one broker and prints one JSON line.

They are given a JSON object as their only argument and know nothing of what they load, so dmq,
Kafka and the bare loop get the very same client. They never start or stop brokers.
"""
