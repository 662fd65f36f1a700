"""The short form of `make chain`: a few kills of each kind, and the output is the input."""

from pathlib import Path

import pytest

from tests.chain.run import Options, Run


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_the_output_of_a_chain_is_its_input_though_members_and_brokers_are_killed(
    tmp_path: Path,
) -> None:
    run = Run(Options(tmp_path, seed=2, kills=4, faults=("member", "broker")), print)
    problems = run.run()
    print(run.summary())
    assert problems == []
    assert run.done.total() == 4
    assert run.counts["out"] > 100, "the chain was not at work"
