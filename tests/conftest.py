"""Options and markers that all tests share; fixtures live beside the tests that use them."""

import os
import warnings

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
