"""Every example is run as a reader would run it, as a program of its own, against a real broker."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> list[str]:
    """Its lines; fails with what it said when it fails."""
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


def test_simple_producer_and_consumer(servers: str, topic: str) -> None:
    assert run("simple_producer", servers, topic) == [f"{topic}-0 offset {n}" for n in range(3)]
    assert run("simple_consumer", servers, topic, "3") == [
        f"{topic}-0 0: hello",
        f"{topic}-0 1: hallo",
        f"{topic}-0 2: bonjour",
    ]


def test_high_throughput(servers: str, topic: str) -> None:
    sent, read = run("high_throughput", servers, topic, "20000")
    assert sent.startswith("sent 20000, 0 failed, ")
    assert read.startswith("read 20000, ")


def test_manual_offsets(servers: str, topic: str) -> None:
    assert run("manual_offsets", servers, topic) == [
        *(f"worked on {{'order': {n}}}" for n in range(6)),
        "committed 6",
        "again {'order': 2}",
    ]


def test_backpressure(servers: str, topic: str) -> None:
    (line,) = run("backpressure", servers, topic)
    assert re.fullmatch(r"worked on 300 jobs; \d+ waiting at most; paused \d+ times", line)


def test_exactly_once(servers: str, topic: str) -> None:
    (line,) = run("exactly_once", servers, f"{topic}-in", f"{topic}-out")
    assert re.fullmatch(r"100 squares, [1-9]\d* attempts thrown away", line)


def test_asyncio_chat(servers: str, topic: str) -> None:
    lines = run("asyncio_chat", servers, topic)
    assert [line for line in lines if line.startswith("said")] == [
        f"said at offset {n}" for n in range(3)
    ]
    assert [line for line in lines if line.startswith("heard")] == [
        "heard Is anybody there?",
        "heard Yes.",
        "heard Good.",
    ]


def test_no_example_is_left_out() -> None:
    text = Path(__file__).read_text()
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'run("{path.stem}"' not in text] == []
