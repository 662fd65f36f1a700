"""A seeded fuzzer at the socket: valid requests, mutated, against a broker that serves others.

Every round sends one mutated frame on a connection (kept as long as the broker keeps it) and wants
an answer, a closed connection, or silence where a bent frame waits for more bytes; the broker must
live. `--fuzz-rounds N --fuzz-seed S` (or DMQ_FUZZ_ROUNDS, DMQ_FUZZ_SEED) for more.
"""

import random
import re
import struct
from collections.abc import Callable
from typing import Any

import pytest
from compat import batches
from compat.process import BrokerProcess
from compat.requests import fetch_request, fetch_topic, produce_request
from compat.topics import LATEST, creatable
from compat.wire import NONE, Connection, EndOfConnectionError, encode, topic_id
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kafka.protocol.producer import InitProducerIdRequest

Mutation = Callable[[random.Random, bytearray], None]
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
NUMBERS = (0, 1, -1, 127, 128, 0x7FFF, -0x8000, 0x7FFFFFFF, -0x80000000)
# A bent frame may ask for a wait of many days; the fuzzer does not grant it.
ANSWER_TIMEOUT_S = 0.25


def valid_frames(topic: str, identity: Any) -> list[bytes]:
    """One frame of each API and of every version that a client may speak."""
    offsets = ListOffsetsRequest.ListOffsetsTopic
    latest = offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    epoch = epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    doomed = DeleteRecordsRequest.DeleteRecordsTopic
    record = doomed.DeleteRecordsPartition(partition_index=0, offset=0)
    wider = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=1, assignments=None)
    asked = MetadataRequest.MetadataRequestTopic
    resource = DescribeConfigsRequest.DescribeConfigsResource
    batch = batches.build([b"fuzz"] * 3, compression="gzip")
    kinds: list[tuple[range, Callable[[], Any]]] = [
        (range(3, 14), lambda: produce_request(topic, {0: batch}, topic_id=identity)),
        (
            range(4, 19),
            lambda: fetch_request([fetch_topic(topic, {0: 0}, topic_id=identity)], max_wait_ms=1),
        ),
        (
            range(1, 12),
            lambda: ListOffsetsRequest(
                replica_id=-1, topics=[offsets(name=topic, partitions=[latest])]
            ),
        ),
        (
            range(14),
            lambda: MetadataRequest(topics=[asked(name=topic)], allow_auto_topic_creation=False),
        ),
        (
            range(5),
            lambda: ApiVersionsRequest(client_software_name="f", client_software_version="1"),
        ),
        (range(4), lambda: FindCoordinatorRequest(key="g", key_type=0)),
        (
            range(2, 8),
            lambda: CreateTopicsRequest(
                topics=[creatable(topic)], timeout_ms=100, validate_only=True
            ),
        ),
        (
            range(4),
            lambda: CreatePartitionsRequest(topics=[wider], timeout_ms=100, validate_only=True),
        ),
        (
            range(3),
            lambda: DeleteRecordsRequest(
                topics=[doomed(name=topic, partitions=[record])], timeout_ms=100
            ),
        ),
        (
            range(6),
            lambda: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        ),
        (
            range(2, 5),
            lambda: OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[epochs(topic=topic, partitions=[epoch])]
            ),
        ),
        (
            range(1, 5),
            lambda: DescribeConfigsRequest(
                resources=[resource(resource_type=2, resource_name=topic, configuration_keys=None)]
            ),
        ),
    ]
    frames = []
    for versions, make in kinds:
        for version in versions:
            request = make()
            request.API_VERSION = version
            frames.append(encode(request, version + 1))
    return frames


def flip(dice: random.Random, frame: bytearray) -> None:
    position = dice.randrange(4, len(frame))
    frame[position] ^= 1 << dice.randrange(8)


def poke(dice: random.Random, frame: bytearray) -> None:
    frame[dice.randrange(4, len(frame))] = dice.choice(INTERESTING)


def number(dice: random.Random, frame: bytearray) -> None:
    layout = dice.choice((">h", ">i"))
    value = dice.choice([n for n in NUMBERS if layout == ">i" or -0x8000 <= n <= 0x7FFF])
    size = struct.calcsize(layout)
    if len(frame) >= 4 + size:
        struct.pack_into(layout, frame, dice.randrange(4, len(frame) - size + 1), value)


def cut(dice: random.Random, frame: bytearray) -> None:
    start = dice.randrange(4, len(frame))
    del frame[start : start + dice.randrange(1, 9)]


def grow(dice: random.Random, frame: bytearray) -> None:
    position = dice.randrange(4, len(frame) + 1)
    frame[position:position] = dice.randbytes(dice.randrange(1, 9))


def repeat(dice: random.Random, frame: bytearray) -> None:
    start = dice.randrange(4, len(frame))
    piece = frame[start : start + dice.randrange(1, 40)]
    frame[start:start] = piece


def rename(dice: random.Random, frame: bytearray) -> None:
    """The same body under another key or version."""
    struct.pack_into(">hh", frame, 4, dice.randrange(95), dice.randrange(20))


MUTATIONS: tuple[Mutation, ...] = (flip, flip, poke, number, number, cut, grow, repeat, rename)
# Keys whose effects a mutated frame must not have here: the broker of the other tests is this one.
HARMFUL = frozenset({20, 33, 37, 44})


def mutated(dice: random.Random, frame: bytes) -> bytes:
    bent = bytearray(frame)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        dice.choice(MUTATIONS)(dice, bent)
        if len(bent) <= 8:
            break
    # Mostly the size is made right again, else hardly any request would reach its decoder.
    if dice.random() < 0.9 or len(bent) < 4:
        bent[:4] = struct.pack(">i", len(bent) - 4)
    return bytes(bent)


def is_harmless(frame: bytes) -> bool:
    return len(frame) < 6 or struct.unpack_from(">h", frame, 4)[0] not in HARMFUL


class Target:
    """A connection that is opened again whenever the broker ended it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._connection: Connection | None = None
        self.answers = self.ends = self.silences = 0

    def send(self, frame: bytes) -> None:
        if self._connection is None:
            self._connection = Connection(self._bootstrap, timeout_s=ANSWER_TIMEOUT_S)
        try:
            self._connection.send_bytes(frame)
            self._connection.read_frame()
            self.answers += 1
        except EndOfConnectionError:
            self.ends += 1
            self.close()
        except TimeoutError:
            self.silences += 1
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def bugs_in(log: str) -> list[str]:
    """Where the broker's own code failed, each place once: no bytes may get it that far."""
    traces = re.findall(r"^Traceback .*?^(?=\S)(?!Traceback)[^\n]*", log, re.MULTILINE | re.DOTALL)
    return sorted({_brief(trace) for trace in traces})


def _brief(trace: str) -> str:
    places = re.findall(r'File "([^"]+)", line (\d+), in (\w+)', trace)
    way = " > ".join(f"{path.rpartition('/')[2]}:{line} {name}" for path, line, name in places)
    return f"{way}: {trace.splitlines()[-1]}"


@pytest.mark.timeout(0)
def test_mutated_requests(
    bootstrap: str,
    broker: BrokerProcess | None,
    new_topic: Callable[..., str],
    pytestconfig: pytest.Config,
) -> None:
    rounds: int = pytestconfig.getoption("--fuzz-rounds")
    seed: int = pytestconfig.getoption("--fuzz-seed")
    topic = new_topic()
    with Connection(bootstrap) as connection:
        frames = valid_frames(topic, topic_id(connection, topic))
    dice = random.Random(seed)
    target = Target(bootstrap)
    for index in range(rounds):
        frame = mutated(dice, dice.choice(frames))
        if is_harmless(frame):
            target.send(frame)
        assert broker is None or broker.is_running, f"seed {seed}, round {index}: {frame.hex()}"
    target.close()
    print(f"{target.answers} answers, {target.ends} ends, {target.silences} silences")
    # A fuzzer whose frames are all refused at the door, or all understood, tests nothing.
    assert target.answers > rounds // 20
    assert target.ends > rounds // 20
    if broker is not None:
        assert bugs_in(broker.log()) == []
    with Connection(bootstrap) as connection:
        assert connection.call(ApiVersionsRequest(), 0).error_code == NONE


def test_the_frames_that_are_mutated_are_valid(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        for frame in valid_frames(topic, topic_id(connection, topic)):
            connection.send_bytes(frame)
            assert connection.read_frame()[:4] == frame[8:12]
