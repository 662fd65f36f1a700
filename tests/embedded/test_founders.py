"""A founder that ended before its cluster's name was in the metadata."""

from pathlib import Path
from typing import Any

import pytest
from embedded.harness import broker_on, run

from dmq.storage.store import Store

ALONE: dict[str, Any] = {}
WITH_A_DOOR = {"cluster_bootstrap": True, "peer_listener": "127.0.0.1:0"}


class KilledError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("way_in", [ALONE, WITH_A_DOOR], ids=["alone", "with a door"])
def test_it_forms_the_cluster_when_it_is_started_again(
    way_in: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identify = Store.identify
    named: list[str] = []

    def last_words(store: Store, cluster_id: str, node_id: int) -> None:
        identify(store, cluster_id, node_id)
        named.append(cluster_id)
        raise KilledError

    async def test() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Store, "identify", last_words)
            with pytest.raises(KilledError):
                async with broker_on(tmp_path, **way_in):
                    pass
        for _ in range(2):
            async with broker_on(tmp_path, **way_in) as broker:
                assert [broker.service.cluster.cluster_id] == named
                assert broker.service.finalized_features(), (
                    "the cluster has them from its first day"
                )

    run(test)
