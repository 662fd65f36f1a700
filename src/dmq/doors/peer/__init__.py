"""The peer door: how brokers of a cluster talk to each other, and how one that is new finds in.

messages.py   what travels on a connection: length, version, kind, body
channel.py    one connection: messages in, messages out, bounded
sockets.py    dialing, listening, names into addresses
session.py    two channels with one peer: frames of groups, calls, casts
calls.py      calls under way and what answers them
peer.py       one peer: its address, its session, the attempts to have one
handshake.py  who dials whom, and which of two attempts wins
door.py       PeerDoor: all of it behind `dmq.broker.peers.Peers`
asking.py     calls from outside, by a broker that does not belong yet
joining.py    what a broker with an empty directory does first
admission.py  what it is answered
entry.py      what these two say to each other, as values and bytes
entrance.py   door and admission together, for the start of a broker
"""

from dmq.doors.peer.door import PeerDoor, PeerSettings

__all__ = ["PeerDoor", "PeerSettings"]
