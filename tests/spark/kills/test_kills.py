"""The random kills: a run that did not kill as often as it was asked to has shown nothing."""

from tests.spark.kills.__main__ import missing


def test_fewer_kills_than_asked_for_are_a_failure() -> None:
    assert missing(50, 50, 60) == []
    [problem] = missing(31, 50, 60)
    assert "31 kills of 50 in 60 minutes" in problem
