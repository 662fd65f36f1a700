"""Options and markers that all tests share; fixtures live beside the tests that use them."""

import os
import warnings
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dmq", deadline=None)  # A busy machine is no failure.
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
"""Folders whose tests share a broker or a Spark session: `make test` runs each in one process."""
_TOGETHER = {"pipelines": "spark"}


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares fixtures stays together when tests run in several processes."""
    here = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(here)
        folder = place.parts[0]
        group = _TOGETHER.get(folder, folder) if folder in _SHARED else str(place)
        item.add_marker(pytest.mark.xdist_group(group))
