"""Kafka's wire protocol: what do these bytes say, and how is this message said in bytes.

Pure: bytes and values in, values and bytes out. Whatever the bytes, decoding gives a message or
raises `ProtocolError`, nothing else. `registry` is the way in; `messages` holds one table per API.
"""
