"""A Spark that is not there: told soon, and in a sentence."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: make setup-dev")

from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.sessions import Where, connect
from tests.spark.cluster.standalone import free_port


def refused(remote: str) -> str:
    with (
        pytest.raises(PipelineError) as caught,
        connect(Where(remote=remote), "nothing", Path("unused.log")),
    ):
        pass
    return f"{caught.value.message}. {caught.value.hint}"


def test_a_connect_server_that_is_not_there_is_told_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dmq.spark.pipelines.sessions._SERVER_PATIENCE_S", 0.5)
    url = f"sc://127.0.0.1:{free_port()}"
    assert f"No Spark Connect server answers at {url}" in refused(f"{url}/;user_id=me")


@pytest.mark.parametrize("url", ["sc://127.0.0.1:many", "sc://:15002/;user_id", "sc://host/path"])
def test_an_address_that_is_none_is_told_how_to_write_it(url: str) -> None:
    said = refused(url)
    assert "is no Connect address" in said
    assert "sc://host:15002" in said
