"""Spark's own Kafka connector as the judge of ours: its jars from Maven Central, into a cache folder.

The version of the installed PySpark is asked for first. Where Maven Central has none of that version,
the newest that has been seen to work on it is taken; the same goes for its token provider, a library
that is only used while a client is configured. What else it needs, and in which version, is read from
the connector's own POM. `str(connector)` names every version: whoever compares must print it, since
the judge may be older than the Spark it runs on.
"""

import hashlib
import os
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path

from bench.targets import REPOSITORY

CENTRAL = "https://repo1.maven.org/maven2"
CACHE = Path(os.environ.get("DMQ_BENCH_CACHE", REPOSITORY / ".cache" / "bench"))
FALLBACKS = ("4.2.0",)
"""Tried after PySpark's own version."""
TIMEOUT_S = 60.0
TOKEN_PROVIDER = "spark-token-provider-kafka-0-10_2.13"
TOKEN_PROVIDER_FALLBACKS = ("4.1.0-preview1", "4.0.0")
NEEDED = (TOKEN_PROVIDER, "kafka-clients", "commons-pool2")
"""Of its dependencies, those that Spark does not bring along."""

_SPARK = "org.apache.spark"
_ARTIFACT = "spark-sql-kafka-0-10_2.13"
_POM = {"m": "http://maven.apache.org/POM/4.0.0"}


class ConnectorAbsentError(Exception):
    """The jars can't be had here; the message says why."""


@dataclass(frozen=True)
class Connector:
    """The jars, for `spark.jars`, and which version they are."""

    version: str
    jars: tuple[Path, ...]

    @property
    def spark_jars(self) -> str:
        """The value of the setting `spark.jars`."""
        return ",".join(str(jar) for jar in self.jars)

    def __str__(self) -> str:
        others = ", ".join(jar.stem for jar in self.jars[1:])
        return f"Spark's Kafka connector {self.version} on Spark {version_of('pyspark')} ({others})"


def connector() -> Connector:
    """The connector, fetched when first needed. Raises ConnectorAbsentError."""
    failures = []
    for version in dict.fromkeys((version_of("pyspark"), *FALLBACKS)):
        try:
            return _connector(version)
        except (OSError, ElementTree.ParseError, ConnectorAbsentError) as error:
            failures.append(f"{version}: {error}")
    raise ConnectorAbsentError(
        f"Spark's Kafka connector is not to be had from Maven Central ({'; '.join(failures)})"
    )


def _connector(version: str) -> Connector:
    folder = CACHE / f"spark-kafka-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    pom = _fetched(folder, _SPARK, _ARTIFACT, version, "pom")
    jars = [_fetched(folder, _SPARK, _ARTIFACT, version, "jar")]
    for dependency in ElementTree.parse(pom).getroot().iterfind(".//m:dependency", _POM):
        group, artifact, wanted, scope = (
            dependency.findtext(f"m:{tag}", "", _POM)
            for tag in ("groupId", "artifactId", "version", "scope")
        )
        if artifact in NEEDED and scope == "compile":
            jars.append(_dependency(folder, group, artifact, wanted))
    if len(jars) != 1 + len(NEEDED):
        raise ConnectorAbsentError(f"its POM does not name {', '.join(NEEDED)}")
    return Connector(version, tuple(jars))


def _dependency(folder: Path, group: str, artifact: str, wanted: str) -> Path:
    others = TOKEN_PROVIDER_FALLBACKS if artifact == TOKEN_PROVIDER else ()
    failures = []
    for version in (wanted, *others):
        try:
            return _fetched(folder, group, artifact, version, "jar")
        except ConnectorAbsentError as error:
            failures.append(str(error))
    raise ConnectorAbsentError("; ".join(failures))


def _fetched(folder: Path, group: str, artifact: str, version: str, kind: str) -> Path:
    """A file of the repository, checked against the checksum beside it there."""
    name = f"{artifact}-{version}.{kind}"
    path = folder / name
    if path.exists():
        return path
    address = f"{CENTRAL}/{group.replace('.', '/')}/{artifact}/{version}/{name}"
    content = _get(address)
    expected = _get(f"{address}.sha1").decode().split()[0]
    if hashlib.sha1(content, usedforsecurity=False).hexdigest() != expected:
        raise ConnectorAbsentError(f"{name} does not have its checksum")
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(content)
    part.rename(path)
    return path


def _get(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as response:
            content: bytes = response.read()
            return content
    except urllib.error.HTTPError as error:
        raise ConnectorAbsentError(f"{address}: {error.code} {error.reason}") from error
