"""A Spark that is not there: told soon, and in a sentence."""

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: make setup-dev")

from fakes.ports import closed_port

from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.sessions import Where, connect


def refused(where: Where) -> str:
    with pytest.raises(PipelineError) as caught, connect(where, "nothing", Path("unused.log")):
        pass
    left = {"SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE"} & set(os.environ)
    assert not left, "the next session of this process would be a Connect session, or fail"
    return f"{caught.value.message}. {caught.value.hint}"


def test_a_connect_server_that_is_not_there_is_told_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dmq.spark.pipelines.sessions._SERVER_PATIENCE_S", 0.5)
    with closed_port() as port:
        url = f"sc://127.0.0.1:{port}"
        said = refused(Where(remote=f"{url}/;user_id=me"))
    assert f"No Spark Connect server answers at {url}" in said


@pytest.mark.parametrize("url", ["sc://127.0.0.1:many", "sc://:15002/;user_id", "sc://host/path"])
def test_an_address_that_is_none_is_told_how_to_write_it(url: str) -> None:
    said = refused(Where(remote=url))
    assert "is no Connect address" in said
    assert "sc://host:15002" in said


def test_masters_that_are_not_there_are_told_at_once() -> None:
    with closed_port() as first, closed_port() as second:
        said = refused(Where(f"spark://127.0.0.1:{first},127.0.0.1:{second}"))
    assert "No Spark master answers" in said
    assert all(f"127.0.0.1:{port}: " in said for port in (first, second))


@pytest.mark.parametrize("master", ["spark://host", "spark://:7077", "spark://host:many"])
def test_a_master_that_is_no_address_is_told_how_to_write_it(master: str) -> None:
    assert "Write spark://host:7077" in refused(Where(master))
