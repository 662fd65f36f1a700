"""kcat (librdkafka 2.0 and its command line) behind the tests' `Client`.

kcat gives one set of headers per run, takes no timestamps, and never says where a record landed:
the offsets are those that follow the end that the broker named before.
"""

import re
import shutil
import subprocess
import tempfile
from itertools import groupby
from pathlib import Path

from compat.clients.client import (
    COMPRESSIONS,
    FETCH_BYTES,
    FETCH_WAIT_MS,
    MAX_REQUEST_BYTES,
    TIMEOUT_S,
    Acks,
    ClientError,
    Compression,
    Headers,
    Place,
    Record,
    Stored,
)

# Headers are printed without a length, so a line that no test's header contains ends them.
_END = b"<end of record>\n"
_FORMAT = "%o %T %K %S\\n%k%s%h<end of record>\\n"
_HEAD = re.compile(rb"(\d+) (-?\d+) (-?\d+) (-?\d+)\n")
_TAB = "\t"


def is_here() -> bool:
    return shutil.which("kcat") is not None


class Kcat:
    name = "kcat"
    compressions = COMPRESSIONS
    reads = COMPRESSIONS
    is_idempotent = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _run(self, *arguments: str) -> bytes:
        line = ("kcat", "-b", self._bootstrap, "-X", f"message.max.bytes={MAX_REQUEST_BYTES}")
        done = subprocess.run((*line, *arguments), capture_output=True, timeout=60, check=False)
        if done.returncode:
            raise ClientError(-1, done.stderr.decode(errors="replace"))
        return done.stdout

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int | None = 0,
        compression: Compression = "none",
        acks: Acks = "all",
    ) -> list[Place]:
        assert partition is not None
        first = self._end(topic, partition)
        options = ["-P", "-t", topic, "-p", str(partition), "-z", compression, "-X", f"acks={acks}"]
        for (key, headers, is_null, _), run in groupby(records, key=_arguments):
            values = [record.value or b"" for record in run]
            named = [option for pair in headers for option in ("-H", _header_option(*pair))]
            self._send([*options, *named], key, values, is_null=is_null)
        return [Place(partition, first + index) for index in range(len(records))]

    def _send(
        self, options: list[str], key: bytes | None, values: list[bytes], *, is_null: bool
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            if b"" in values:
                # Only a line that has a key and nothing else is an empty value, or with -Z a null.
                assert set(values) == {b""}
                line = (key or b"") + _TAB.encode()
                null = ["-Z"] if is_null else []
                file = self._file(folder, (line + b"\n") * len(values))
                self._run(*options, *null, "-K", _TAB, "-l", file)
                return
            keyed = [] if key is None else ["-k", key.decode()]
            if any(b"\n" in value for value in values):
                # Without -l a file is one message, whatever its bytes.
                for value in values:
                    self._run(*options, *keyed, self._file(folder, value))
                return
            file = self._file(folder, b"\n".join(values) + b"\n")
            self._run(*options, *keyed, "-l", file)

    @staticmethod
    def _file(folder: str, content: bytes) -> str:
        file = Path(folder) / "input"
        file.write_bytes(content)
        return str(file)

    def consume(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int = 0,
        count: int,
        max_bytes: int = FETCH_BYTES,
    ) -> list[Stored]:
        where = ["-C", "-q", "-t", topic, "-p", str(partition), "-o", str(offset)]
        limits = ["-c", str(count), "-X", f"fetch.message.max.bytes={max_bytes}"]
        limits += ["-X", f"fetch.wait.max.ms={FETCH_WAIT_MS}"]
        checks = ["-X", "check.crcs=true", "-m", str(int(TIMEOUT_S))]
        return list(_parse(self._run(*where, *limits, *checks, "-f", _FORMAT)))

    def offsets(
        self, topic: str, *, partition: int = 0, timestamp_ms: int | None = None
    ) -> tuple[int, int, int | None]:
        beginning = self._query(topic, partition, -2)
        end = self._query(topic, partition, -1)
        if timestamp_ms is None:
            return beginning, end, None
        found = self._query(topic, partition, timestamp_ms)
        # librdkafka says "the end" (-1) when no record is that late.
        return beginning, end, found if found >= 0 else None

    def _end(self, topic: str, partition: int) -> int:
        try:
            return self._query(topic, partition, -1)
        except ClientError as error:
            if "Unknown partition" in str(error):
                return 0  # The first record will create the topic.
            raise

    def _query(self, topic: str, partition: int, timestamp_ms: int) -> int:
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}")
        match = re.search(rb"offset (-?\d+)", answer)
        assert match is not None, answer
        return int(match[1])

    def topics(self) -> set[str]:
        listing = self._run("-L").decode()
        return set(re.findall(r'topic "([^"]+)" with', listing))

    def close(self) -> None: ...


def _arguments(record: Record) -> tuple[bytes | None, Headers, bool, bool]:
    """What one run of kcat has in common for all its records."""
    return record.key, record.headers, record.value is None, not record.value


def _header_option(key: str, value: bytes | None) -> str:
    return key if value is None else f"{key}={value.decode()}"


def _parse(output: bytes) -> list[Stored]:
    found: list[Stored] = []
    position = 0
    while position < len(output):
        head = _HEAD.match(output, position)
        assert head is not None, output[position : position + 200]
        offset, timestamp_ms, key_size, value_size = map(int, head.groups())
        key, position = _take(output, head.end(), key_size)
        value, position = _take(output, position, value_size)
        end = output.index(_END, position)
        headers = as_printed(output[position:end])
        position = end + len(_END)
        found.append(Stored(offset, Record(key, value, headers, timestamp_ms)))
    return found


def _take(output: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, position
    return output[position : position + size], position + size


def as_printed(text: bytes) -> Headers:
    """kcat's text for headers cannot be taken apart again: it is kept as one."""
    return (("as kcat prints them", text),) if text else ()


def printed(headers: Headers) -> Headers:
    """What `as_printed` gives for these headers: `key=value,…`, null as NULL, cut at a zero."""
    pairs = [k.encode() + b"=" + (b"NULL" if v is None else v.split(b"\0")[0]) for k, v in headers]
    return as_printed(b",".join(pairs))
