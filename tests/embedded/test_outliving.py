"""A broker that runs on without the others looks at its metadata; see unit/broker/test_outliving.py."""

from pathlib import Path

import pytest
from embedded.harness import broker_on, run, until

from dmq.broker import outliving


def test_it_tells_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outliving, "TELL_MS", 1)
    monkeypatch.setattr(outliving, "_is_hopeless", lambda metadata, is_linked: True)

    async def test() -> None:
        async with broker_on(tmp_path):
            await until(lambda: "nobody leads the cluster's metadata" in caplog.text, "told")

    run(test)
