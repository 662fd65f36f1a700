"""docs/CONFIGURATION.md is what the tables say."""

from pathlib import Path

from dmq.config.broker import BROKER
from dmq.config.document import document

PATH = Path(__file__).parents[3] / "docs" / "CONFIGURATION.md"


def test_the_document_is_up_to_date() -> None:
    command = "python -m dmq.config.document > docs/CONFIGURATION.md"
    assert PATH.read_text(encoding="utf-8") == document(), f"run: {command}"


def test_every_broker_setting_is_in_it() -> None:
    text = document()
    for name in BROKER:
        assert f"| `{name}` |" in text
