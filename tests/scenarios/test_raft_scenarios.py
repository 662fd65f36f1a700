"""Runs the transcripts of raft/*.txt; with DMQ_REWRITE=1 writes what happened into them instead.

After a rewrite read the diff: it is the review.
"""

import os
from pathlib import Path

import pytest
from scenarios.raft_script import Script

FOLDER = Path(__file__).parent / "raft"
DASHES = "----"


def replay(text: str) -> str:
    """The same transcript with what happens now."""
    script = Script()
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        said = lines[: lines.index(DASHES)] if DASHES in lines else lines
        commands = [line for line in said if line and not line.startswith("#")]
        if not commands:
            blocks.append("\n".join(said))
            continue
        happened = [line for command in commands for line in script.run(command)]
        script.cluster.check_logs()
        blocks.append("\n".join([*said, DASHES, *happened]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    happened = replay(text)
    if os.environ.get("DMQ_REWRITE"):
        path.write_text(happened)
    else:
        assert happened == text


def test_there_are_transcripts() -> None:
    assert len(list(FOLDER.glob("*.txt"))) >= 8
