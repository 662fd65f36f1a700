"""A Java for Spark: found, or a sentence that says how to get one.

Spark itself would end with "Java gateway process exited" and leave the reader guessing.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dmq.spark.pipelines.failures import PipelineError

LEAST = 17


def ensure_java() -> None:
    """Point JAVA_HOME at a Java that Spark runs on. Raises PipelineError if there is none."""
    found = []
    for java in _candidates():
        version = _major(java)
        if version is not None and version >= LEAST:
            os.environ["JAVA_HOME"] = str(java.resolve().parents[1])
            return
        found.append(f"{java} is version {version or 'unknown'}")
    raise PipelineError(
        f"Spark needs Java {LEAST} or later: " + ("; ".join(found) or "no Java is found"),
        f"Install one (on Debian: apt-get install openjdk-{LEAST}-jre-headless) or set JAVA_HOME.",
    )


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def _major(java: Path) -> int | None:
    """17 of `openjdk version "17.0.15"`, 8 of `java version "1.8.0_392"`."""
    try:
        said = subprocess.run(  # noqa: S603 (a java of this machine)
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None
