"""docs/PROTOCOL.md lists what is served; the table is made from the table that the door uses.

`DMQ_REWRITE=1 pytest tests/unit/doors/test_protocol_page.py` writes it anew.
"""

import os
from importlib import import_module
from pathlib import Path

from dmq.doors.kafka_api.served import PRODUCE, PRODUCE_VERSION_MIN, SERVED
from dmq.wire import registry

PAGE = Path(__file__).parents[3] / "docs" / "PROTOCOL.md"
BEGIN, END = "<!-- the table begins -->\n", "<!-- the table ends -->\n"


def first_sentence(text: str) -> str:
    """What the handler's docstring says after the name and versions."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.partition(": ")[2].rstrip(".")


def table() -> str:
    rows = ["| key | API | versions | |", "|---|---|---|---|"]
    for key, (module, lowest, highest) in SERVED.items():
        lowest = PRODUCE_VERSION_MIN if key == PRODUCE else lowest
        handler = import_module(f"dmq.doors.kafka_api.{module}")
        versions = f"{lowest}-{highest}" if lowest < highest else str(lowest)
        says = first_sentence(handler.__doc__ or "")
        rows.append(f"| {key} | {registry.api(key).name} | {versions} | {says} |")
    return "\n".join(rows) + "\n"


def test_the_page_lists_what_is_served() -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    found, after = rest.split(END)
    if os.environ.get("DMQ_REWRITE"):
        PAGE.write_text(before + BEGIN + table() + END + after)
        return
    assert found == table(), "run it once with DMQ_REWRITE=1"


def test_served_versions_are_versions_that_we_speak() -> None:
    for key, (_, lowest, highest) in SERVED.items():
        api = registry.api(key)
        assert api.advertised_min_version <= lowest <= highest <= api.max_version
