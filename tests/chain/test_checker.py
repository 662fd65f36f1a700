"""The judge finds what it is for: each kind of fault, written by hand."""

import json

from tests.chain.checker import Read, by_partition, check_feed, check_hop, check_receipts

SOURCE = by_partition([Read(0, 0, b"1"), Read(0, 1, b"2"), Read(0, 5, b"3"), Read(1, 0, b"4")])
GOOD = [Read(0, 0, b"0:0 1"), Read(0, 2, b"0:1 2"), Read(0, 3, b"0:5 3"), Read(1, 7, b"1:0 4")]


def kinds(problems: list[str]) -> list[str]:
    return [problem.partition(":")[0] for problem in problems]


def of_hop(*records: Read) -> list[str]:
    return kinds(check_hop("hop", SOURCE, by_partition(records)))


def receipt(**moved: list[int]) -> Read:
    places = {name[1:]: offsets for name, offsets in moved.items()}
    return Read(0, 0, json.dumps({"hop": "hop", "moved": places}).encode())


def test_a_true_copy_passes() -> None:
    assert of_hop(*GOOD) == []


def test_a_hop_that_lost_doubled_invented_or_reordered_is_found() -> None:
    assert of_hop(*GOOD[1:]) == ["lost"]
    assert of_hop(*GOOD, Read(0, 9, b"0:1 2")) == ["doubled"]
    assert of_hop(*GOOD, Read(0, 9, b"0:2 2")) == ["foreign"]
    assert of_hop(*GOOD, Read(1, 9, b"0:1 2")) == ["foreign"]
    swapped = [GOOD[1]._replace(offset=0), GOOD[0]._replace(offset=2)]
    assert of_hop(*swapped, *GOOD[2:]) == ["reordered"]


def test_receipts_match_what_was_moved() -> None:
    whole = [receipt(p0=[0, 1], p1=[0]), receipt(p0=[5])]
    assert check_receipts("hop", SOURCE, whole) == []
    assert check_receipts("another", {}, whole) == []
    assert kinds(check_receipts("hop", SOURCE, whole[1:])) == ["torn"] * 3
    assert kinds(check_receipts("hop", SOURCE, [*whole, receipt(p0=[5])])) == ["torn"]
    assert kinds(check_receipts("hop", SOURCE, [*whole, receipt(p0=[6])])) == ["torn"]


def test_the_feed_is_there_once_and_where_it_was_acknowledged() -> None:
    assert check_feed({1: (0, 0), 4: (1, 0)}, SOURCE) == []
    assert kinds(check_feed({9: (0, 3)}, SOURCE)) == ["lost"]
    assert kinds(check_feed({1: (0, 1)}, SOURCE)) == ["lost"]
    twice = by_partition([Read(0, 0, b"1"), Read(0, 1, b"1")])
    assert kinds(check_feed({}, twice)) == ["doubled"]
