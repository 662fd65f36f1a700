"""A broker whose settings lead to another cluster than its directory belongs to."""

import asyncio
import time
from pathlib import Path

import pytest
from embedded.harness import broker_on, run, until
from fakes.ports import closed_port

from dmq.broker import runtime as runtime_module
from dmq.broker.runtime import Runtime
from dmq.doors.peer.entrance import PeerEntrance
from dmq.doors.peer.joining import JoinError

DOOR = "127.0.0.1:0"


async def founded(data_dir: Path) -> str:
    """The id of a cluster whose only broker stopped."""
    async with broker_on(data_dir, cluster_bootstrap=True, peer_listener=DOOR) as broker:
        return broker.service.cluster_id


def test_a_broker_is_not_started_in_its_cluster_when_it_was_to_join_another(tmp_path: Path) -> None:
    async def test() -> None:
        ours = await founded(tmp_path / "b")
        async with broker_on(tmp_path / "a", cluster_bootstrap=True, peer_listener=DOOR) as other:
            address = f"127.0.0.1:{other._peer_port}"
            for way_in in ({"cluster_join": address}, {"cluster_peers": f"1@{address}"}):
                with pytest.raises(JoinError) as raised:
                    async with broker_on(tmp_path / "b", peer_listener=DOOR, **way_in):
                        pass
                for word in (ours, other.service.cluster_id, str(tmp_path / "b"), "--data"):
                    assert word in str(raised.value)
        async with broker_on(tmp_path / "b", peer_listener=DOOR) as broker:
            assert broker.service.cluster_id == ours

    run(test)


def test_it_starts_where_nobody_answers_and_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "ASK_S", 30.0)

    async def test() -> None:
        ours = await founded(tmp_path)
        began = time.monotonic()
        join = f"127.0.0.1:{nobody}"
        async with broker_on(tmp_path, peer_listener=DOOR, cluster_join=join) as broker:
            assert broker.service.cluster_id == ours
            assert time.monotonic() - began < 25, "a refused connection is an answer"

    with closed_port("127.0.0.1") as nobody:
        run(test)


def test_who_serves_clients_already_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def late(entrance: PeerEntrance, cluster_id: str) -> None:
        await may_answer.wait()
        raise JoinError(f"{cluster_id} is not that of the others")

    async def is_told(broker: Runtime) -> None:
        may_answer.set()
        await until(lambda: "is not that of the others" in caplog.text, "told")
        assert broker.failure is None

    async def test() -> None:
        await founded(tmp_path)
        async with broker_on(tmp_path, peer_listener=DOOR, cluster_join="127.0.0.1:1") as broker:
            await is_told(broker)

    may_answer = asyncio.Event()
    monkeypatch.setattr(runtime_module, "ASK_S", 0.01)
    monkeypatch.setattr(PeerEntrance, "check_cluster", late)
    run(test)
    assert [r.levelname for r in caplog.records if "that of the others" in r.message] == ["ERROR"]
