"""The judge of a chain: what a hop put out is what it took in, once each, in order, whole transactions.

    lost         in the source, not in the target
    doubled      twice in the target
    foreign      in the target, with a place in the source that holds something else, or nothing
    reordered    all there, in another order than in the source
    torn         a receipt without its records, records without their receipt, or two for one

Works on lists of what `read_committed` shows, partition by partition; knows no client.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Read(NamedTuple):
    """A record as a reader got it."""

    partition: int
    offset: int
    value: bytes


Partitions = dict[int, list[Read]]


def by_partition(records: Iterable[Read]) -> Partitions:
    found: Partitions = {}
    for record in sorted(records):
        found.setdefault(record.partition, []).append(record)
    return found


def check_hop(hop: str, source: Partitions, target: Partitions) -> list[str]:
    """What is wrong between a source and its target."""
    problems = []
    for partition in sorted(source.keys() | target.keys()):
        where = f"{hop}, partition {partition}"
        problems += _check(where, source.get(partition, []), target.get(partition, []))
    return problems


def _check(where: str, taken: list[Read], put: list[Read]) -> list[str]:
    problems = []
    held = {record.offset: record.value for record in taken}
    seen: dict[int, int] = {}
    order = []
    for record in put:
        place, _, value = record.value.partition(b" ")
        partition, offset = (int(number) for number in place.split(b":"))
        if partition != record.partition or held.get(offset) != value:
            problems.append(f"foreign: {where}: {record} is not what the source has at {offset}")
        elif offset in seen:
            problems.append(
                f"doubled: {where}: source offset {offset} is at {seen[offset]} and {record.offset}"
            )
        else:
            seen[offset] = record.offset
            order.append(offset)
    for offset in held.keys() - seen.keys():
        problems.append(f"lost: {where}: source offset {offset} is not in the target")
    for before, after in itertools.pairwise(order):
        if after < before:
            problems.append(f"reordered: {where}: {after} comes after {before}")
    return problems


def check_receipts(hop: str, source: Partitions, receipts: Iterable[Read]) -> list[str]:
    """Each record is named by exactly one committed transaction."""
    named: Counter[tuple[int, int]] = Counter()
    for receipt in receipts:
        said = json.loads(receipt.value)
        if said["hop"] == hop:
            named.update(
                (int(p), offset) for p, offsets in said["moved"].items() for offset in offsets
            )
    wanted = {(record.partition, record.offset) for reads in source.values() for record in reads}
    problems = [f"torn: {hop}: {place} has no receipt" for place in sorted(wanted - named.keys())]
    problems += [
        f"torn: {hop}: {place} has {count} receipts, and {'is' if place in wanted else 'is not'} there"
        for place, count in sorted(named.items())
        if count > 1 or place not in wanted
    ]
    return problems


def check_feed(acknowledged: dict[int, tuple[int, int]], source: Partitions) -> list[str]:
    """What the feeder, an idempotent producer, was told of each number holds, and nothing is twice."""
    problems = []
    places: dict[int, tuple[int, int]] = {}
    for reads in source.values():
        for record in reads:
            number = int(record.value)
            if number in places:
                problems.append(f"doubled: source: {number} is at {places[number]} and {record}")
            places[number] = record.partition, record.offset
    for number, place in acknowledged.items():
        if places.get(number) != place:
            problems.append(
                f"lost: source: {number} was acknowledged at {place}, is at {places.get(number)}"
            )
    return problems
