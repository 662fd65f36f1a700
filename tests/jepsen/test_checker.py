"""The judge is judged: each kind of violation is found, and nothing else is."""

from pathlib import Path
from typing import Any

import pytest

from tests.jepsen.checker import KINDS, check
from tests.jepsen.history import Event, Recorder, name_of, put_together, read, value_of


class Story:
    """A history written by hand: one topic, one partition unless said otherwise."""

    def __init__(self, *, idempotent: bool = True) -> None:
        self.events: list[Event] = []
        self.add("producer", client="w", library="x", idempotent=idempotent)
        self.reader("r")

    def add(self, kind: str, **fields: Any) -> None:
        self.events.append({"t": len(self.events), "e": kind, **fields})

    def reader(self, client: str, *, final: bool = False) -> None:
        self.add("reader", client=client, library="x", final=final)
        self.add("assign", client=client, topic="t", p=0, offset=0)

    def sent(self, *numbers: int, p: int = 0) -> None:
        for number in numbers:
            self.add("send", client="w", topic="t", p=p, n=number, count=1)

    def acked(self, number: int, offset: int, p: int = 0) -> None:
        self.add("ack", client="w", topic="t", p=p, acks=[[number, offset]])

    def failed(self, number: int, *, definite: bool = False) -> None:
        self.add("fail", client="w", topic="t", p=0, n=number, error="no", definite=definite)

    def polled(self, client: str, *records: tuple[int, int | str]) -> None:
        named = [[o, name if isinstance(name, str) else f"w:{name}"] for o, name in records]
        self.add("poll", client=client, topic="t", p=0, records=named)

    def ends(self, *log: int | str, start: int = 0, readers: tuple[str, ...] = ("r",)) -> None:
        """The log at the end; `readers` have read it whole too."""
        records = [(start + index, name) for index, name in enumerate(log)]
        self.add("ends", ends={"t/0": [start, start + len(log)]})
        self.reader("final", final=True)
        self.add("assign", client="final", topic="t", p=0, offset=start)
        for reader in (*readers, "final"):
            self.polled(reader, *records)

    def kinds(self) -> list[str]:
        return [finding.kind for finding in check(self.events).findings]


def test_a_good_history() -> None:
    story = Story()
    story.sent(0, 1, 2, 3)
    story.acked(0, 0)
    story.acked(1, 1)
    story.failed(2)
    story.acked(3, 2)
    story.ends(0, 1, 3)
    report = check(story.events)
    assert report.findings == []
    assert report.counts["sent"] == 4
    assert report.counts["acknowledged"] == 3
    assert report.counts["read"] == 6


def test_lost_in_the_middle_and_at_the_end() -> None:
    story = Story()
    story.sent(0, 1, 2)
    story.acked(0, 0)
    story.acked(1, -1)
    story.acked(2, 1)
    story.ends(0)
    assert story.kinds() == ["lost", "lost"]


def test_what_was_read_may_not_vanish() -> None:
    story = Story()
    story.sent(0, 1)
    story.failed(1)
    story.polled("r", (0, 0), (1, 1))
    story.ends(0, readers=())
    assert story.kinds() == ["lost"]


def test_duplicate_of_an_idempotent_producer() -> None:
    story = Story()
    story.sent(0)
    story.failed(0)
    story.ends(0, 0)
    assert story.kinds() == ["duplicate"]


def test_a_plain_producer_may_double_only_what_was_in_doubt() -> None:
    story = Story(idempotent=False)
    story.sent(0, 1)
    story.failed(0)
    story.sent(0)
    story.acked(0, 1)
    story.acked(1, 2)
    story.ends(0, 0, 1, 1)
    report = check(story.events)
    assert [finding.kind for finding in report.findings] == ["duplicate"]
    assert "w:1" in report.findings[0].text
    assert report.counts["allowed duplicates"] == 1


def test_unseen_is_a_gap_over_something_that_is_there() -> None:
    story = Story()
    story.sent(0, 1, 2)
    story.ends(0, 1, 2, readers=())
    story.polled("r", (0, 0), (2, 2))
    assert story.kinds() == ["unseen"]


def test_unseen_is_an_end_that_was_not_reached() -> None:
    story = Story()
    story.sent(0, 1)
    story.ends(0, 1, readers=())
    story.polled("r", (0, 0))
    assert story.kinds() == ["unseen"]


@pytest.mark.parametrize("idempotent", [True, False])
def test_reordered(idempotent: bool) -> None:
    story = Story(idempotent=idempotent)
    story.sent(0)
    story.acked(0, 1)
    story.sent(1, 2)
    story.ends(1, 0, 2)
    assert story.kinds() == ["reordered"]


@pytest.mark.parametrize(("idempotent", "kinds"), [(True, ["reordered"]), (False, [])])
def test_what_was_under_way_at_one_time_has_an_order_only_with_idempotence(
    idempotent: bool, kinds: list[str]
) -> None:
    story = Story(idempotent=idempotent)
    story.sent(0, 1)
    story.acked(1, 0)
    story.acked(0, 1)
    story.ends(1, 0)
    assert story.kinds() == kinds


def test_what_a_plain_producer_has_in_doubt_may_come_late() -> None:
    story = Story(idempotent=False)
    story.sent(0, 1, 2)
    story.failed(0)
    story.ends(1, 2, 0)
    assert story.kinds() == []


def test_what_was_sent_again_may_come_after_others() -> None:
    story = Story(idempotent=False)
    story.sent(0, 1)
    story.failed(0, definite=True)
    story.sent(0)
    story.ends(1, 0)
    assert story.kinds() == []


def test_two_reads_of_an_offset_differ() -> None:
    story = Story()
    story.sent(0, 1)
    story.polled("r", (0, 0))
    story.ends(1, readers=())
    assert story.kinds() == ["inconsistent"]


def test_another_record_is_where_one_was_acknowledged() -> None:
    story = Story()
    story.sent(0, 1)
    story.acked(0, 1)
    story.ends(0, 1)
    assert story.kinds() == ["inconsistent"]


def test_a_hole_in_the_log() -> None:
    story = Story()
    story.sent(0, 1, 2)
    story.add("ends", ends={"t/0": [0, 4]})
    story.reader("final", final=True)
    story.polled("final", (0, 0), (2, 2))
    story.polled("r", (0, 0), (2, 2))
    kinds = story.kinds()
    assert kinds.count("inconsistent") == 2, "one hole in the middle, one at the end"


def test_polls_go_forward_unless_told() -> None:
    story = Story()
    story.sent(0, 1)
    story.polled("r", (0, 0), (1, 1))
    story.add("assign", client="r", topic="t", p=0, offset=0)
    story.polled("r", (0, 0))
    story.polled("r", (0, 0))
    story.ends(0, 1, readers=())
    assert story.kinds() == ["non-monotonic"]


def test_foreign_records() -> None:
    story = Story()
    story.sent(0, 2)
    story.sent(3, p=1)
    story.failed(2, definite=True)
    story.ends(0, "w:9", "noise", 2, 3)
    assert story.kinds() == ["foreign"] * 4


def test_refused_once_and_sent_again_is_not_foreign() -> None:
    story = Story(idempotent=False)
    story.sent(0)
    story.failed(0, definite=True)
    story.sent(0)
    story.acked(0, 0)
    story.ends(0)
    assert story.kinds() == []


def test_a_log_need_not_begin_at_zero() -> None:
    story = Story()
    story.add("assign", client="r", topic="t", p=0, offset=5)
    story.sent(0, 1)
    story.acked(0, 5)
    story.ends(0, 1, start=5)
    assert story.kinds() == []


def test_a_producer_that_never_hears_of_a_record() -> None:
    story = Story()
    story.sent(0, 1, 2)
    story.acked(0, 0)
    story.failed(2)
    story.add("closed", client="w", open=[1])
    story.ends(0)
    assert story.kinds() == ["unanswered"]
    well = Story()
    well.sent(0)
    well.acked(0, 0)
    well.add("closed", client="w", open=[])
    well.ends(0)
    assert well.kinds() == []


BATCHES = [[0, 0, "aa"], [1, 2, "bb"], [3, 3, "cc"]]


def replicated(*others: list[list[Any]]) -> list[str]:
    """A log of four records, broker 1's replica of it, and what the others have."""
    story = Story()
    story.sent(0, 1, 2, 3)
    story.ends(0, 1, 2, 3)
    for broker, batches in enumerate((BATCHES, *others), 1):
        story.add("replica", broker=broker, topic="t", p=0, batches=batches[:1])
        story.add("replica", broker=broker, topic="t", p=0, batches=batches[1:])
    return story.kinds()


def test_replicas_that_are_alike() -> None:
    assert replicated(BATCHES, BATCHES) == []
    assert replicated([*BATCHES, [4, 9, "dd"]]) == [], "what is behind the end may go again"


@pytest.mark.parametrize(
    ("batches", "count"),
    [
        ([[0, 0, "aa"], [1, 2, "XX"], [3, 3, "cc"]], 1),  # Other bytes.
        ([[0, 0, "aa"], [1, 1, "bb"], [2, 3, "cc"]], 1),  # Other batches.
        ([[0, 0, "aa"], [1, 2, "bb"]], 2),  # An end that is missing, and so a difference.
        ([[0, 0, "aa"], [3, 3, "cc"]], 2),  # A hole.
        ([[1, 2, "bb"], [3, 3, "cc"]], 2),  # A beginning.
        ([[0, 0, "aa"], [1, 2, "bb"], [2, 2, "dd"], [3, 3, "cc"]], 2),  # An offset twice.
        ([], 2),
    ],
)
def test_replicas_that_diverged(batches: list[list[Any]], count: int) -> None:
    assert replicated(batches) == ["diverged"] * count
    assert replicated(BATCHES, batches) == ["diverged"] * count


def broken_off(*, idempotent: bool = True) -> Story:
    """Three records were sent, two were read, then the run broke off."""
    story = Story(idempotent=idempotent)
    story.sent(0, 1, 2)
    story.acked(0, 0)
    story.acked(1, -1)
    story.acked(2, 2)
    story.polled("r", (0, 0), (1, 1))
    return story


def test_a_history_that_breaks_off_is_judged_as_far_as_it_was_read() -> None:
    """No record is lost because nobody came to read it; green it is never."""
    assert broken_off().kinds() == ["unfinished"]
    slow = broken_off()
    slow.reader("slow")
    slow.polled("slow", (0, 0))
    assert slow.kinds() == ["unfinished"]


def test_a_history_that_breaks_off_before_anything_was_read() -> None:
    story = Story()
    story.sent(0)
    story.acked(0, 0)
    assert story.kinds() == ["unfinished"]


def test_what_is_wrong_in_a_history_that_breaks_off() -> None:
    lost = broken_off()
    lost.sent(3, 4)
    lost.acked(3, 0)
    assert lost.kinds() == ["unfinished", "lost"], "another record is where it was acknowledged"
    foreign = broken_off()
    foreign.polled("r", (2, "noise"))
    assert foreign.kinds() == ["unfinished", "foreign", "lost"]
    doubled = broken_off()
    doubled.polled("r", (2, 2), (3, 2))
    assert doubled.kinds() == ["unfinished", "duplicate"]
    turned = broken_off()
    turned.sent(3, 4)
    turned.polled("r", (2, 2), (3, 4), (4, 3))
    assert turned.kinds() == ["unfinished", "reordered"]
    differing = broken_off()
    differing.reader("s")
    differing.polled("s", (0, 1))
    assert "inconsistent" in differing.kinds()
    passed = broken_off()
    passed.reader("s")
    passed.polled("s", (1, 1))
    assert passed.kinds() == ["unfinished", "unseen"]
    hole = broken_off()
    hole.polled("r", (3, 2))
    assert hole.kinds() == ["unfinished", "inconsistent", "inconsistent"]


def test_every_kind_has_a_test() -> None:
    text = Path(__file__).read_text()
    assert [kind for kind in KINDS if f'"{kind}"' not in text] == []


def test_histories_are_put_together_by_time(tmp_path: Path) -> None:
    recorders = [Recorder(tmp_path / f"{name}.jsonl") for name in "ab"]
    for number in range(4):
        recorders[number % 2].add("send", n=number)
    for recorder in recorders:
        recorder.close()
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"t": 1, "e": "cut o')
    put_together([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "all.jsonl")
    assert [event["n"] for event in read(tmp_path / "all.jsonl")] == [0, 1, 2, 3]


def test_names() -> None:
    assert name_of(value_of("p1.2", 17, 100)) == "p1.2:17"
