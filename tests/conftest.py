"""Options and markers that all tests share; fixtures live beside the tests that use them."""

import os
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# A busy machine is no failure. The same examples in each run: what fails, fails by a change.
_CALM: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dmq", derandomize=True, **_CALM)
settings.register_profile("explore", derandomize=False, **_CALM)
settings.load_profile("dmq")

with warnings.catch_warnings():
    # kafka-python reads its schemas, at import, with a function that Python 3.11 calls deprecated.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka  # noqa: F401


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-rounds",
        type=int,
        default=int(os.environ.get("DMQ_FUZZ_ROUNDS", "1500")),
        help="mutated requests that the socket fuzzer sends (also DMQ_FUZZ_ROUNDS)",
    )
    parser.addoption(
        "--fuzz-seed",
        type=int,
        default=int(os.environ.get("DMQ_FUZZ_SEED", "20260914")),
        help="seed of the socket fuzzer; printed by a failure (also DMQ_FUZZ_SEED)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "foreign(name): needs the program tests/foreign/NAME, built before the tests"
    )


_SHARED = ("client", "compat", "hostile", "pipelines", "spark")
"""Folders whose tests share a broker or a Spark session: each runs in one process."""
_TOGETHER = {"pipelines": "spark"}


class Together(LoadScopeScheduling):
    """Gives tests to the processes of `make test`: what shares fixtures stays together."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.removeprefix("tests/").partition("/")[0]
        return _TOGETHER.get(folder, folder) if folder in _SHARED else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    """With `-n`, whatever `--dist` says."""
    return Together(config, log)
