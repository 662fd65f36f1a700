"""Where a consumer in a rack should read (KIP-392)."""

import pytest

from dmq.broker.nearest import Candidate, nearest

LEADER = Candidate(1, "a", 100)


@pytest.mark.parametrize(
    ("rack", "others", "expected"),
    [
        ("", [Candidate(2, "", 100)], 1),  # A consumer that says no rack reads from the leader.
        ("a", [Candidate(2, "a", 100)], 1),  # The leader is as near.
        ("b", [Candidate(2, "b", 100)], 2),
        ("c", [Candidate(2, "b", 100)], 1),
        ("b", [Candidate(2, "b", 90), Candidate(3, "b", 95)], 3),
        ("b", [Candidate(3, "b", 95), Candidate(2, "b", 95)], 2),
        ("b", [Candidate(2, "b", 49)], 1),  # It has not got that far.
        ("b", [Candidate(2, "b", 100, log_start_offset=51)], 1),
        ("b", [Candidate(2, "b", 50)], 2),
        ("b", [Candidate(2, None, 100)], 1),
    ],
)
def test_the_choice(rack: str, others: list[Candidate], expected: int) -> None:
    assert nearest(rack, 1, 50, [LEADER, *others]) == expected
    assert nearest(rack, 1, 50, [*others, LEADER]) == expected
