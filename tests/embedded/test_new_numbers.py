"""A broker that joins again with an empty folder and without its number."""

from pathlib import Path

import pytest
from embedded.harness import broker_on, run, until

from dmq.testing.networks import free_port

DOOR = "127.0.0.1:0"


def test_it_says_whose_place_it_may_have_taken_and_does_not_quarrel_with_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    door = f"127.0.0.1:{free_port()}"

    async def test() -> None:
        async with broker_on(tmp_path / "a", cluster_bootstrap=True, peer_listener=DOOR) as first:
            join = f"127.0.0.1:{first._peer_port}"
            async with broker_on(tmp_path / "b", cluster_join=join, peer_listener=door):
                assert "is registered at" not in caplog.text
            async with broker_on(tmp_path / "c", cluster_join=join, peer_listener=door) as third:
                assert third.service.identity.node_id == 3
                looks = "broker 2 at"
                await until(lambda: caplog.text.count(looks) >= 2, "both look for the old one")

    run(test)
    said = [line for line in caplog.messages if line.startswith("broker 2 is registered at")]
    assert len(said) == 1
    assert f"at {door}, which is an address of this broker 3" in said[0]
    assert "has the id of this one" not in caplog.text
