"""One run of a command against a cluster: where it is, how to log in, how to speak.

Owns the settings that every command shares and the making of librdkafka clients from them, with
librdkafka's own log lines caught so that a failure can be told in one sentence. Commands that never
meet a cluster use only `output`. Never retries by itself: librdkafka does.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmq.cli.exits import CommandError, Exit, not_found, usage
from dmq.cli.knock import CONNECT_TIMEOUT_S, knock
from dmq.cli.output import Output

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
PORT_DEFAULT = 9092
REQUEST_TIMEOUT_S = 30.0
"""How long one answer may take. Kafka's tools wait 60 s; a person at a prompt has left by then."""

_LOG_LINES_KEPT = 20


class Session:
    """The cluster, the credentials and the voice of one command."""

    __slots__ = ("_log", "bootstrap", "client_config", "output")

    def __init__(
        self, bootstrap: str, client_config: dict[str, str], output: Output | None = None
    ) -> None:
        self.bootstrap = client_config.pop("bootstrap.servers", bootstrap)
        self.client_config = client_config
        self.output = output or Output()
        self._log = _LastLines()

    @property
    def is_plain(self) -> bool:
        """No TLS and no login, so that bytes of our own may be spoken too."""
        return self.client_config.get("security.protocol", "plaintext").lower() == "plaintext"

    def admin(self) -> "AdminClient":
        """An admin client of a cluster that answers."""
        from confluent_kafka.admin import AdminClient

        self.reach()
        client: AdminClient = self._client(AdminClient, {})
        return client

    def producer(self, settings: dict[str, Any]) -> "Producer":
        """A producer for a cluster that answers."""
        from confluent_kafka import Producer

        self.reach()
        client: Producer = self._client(Producer, settings)
        return client

    def consumer(self, settings: dict[str, Any]) -> "Consumer":
        """A consumer of a cluster that answers."""
        from confluent_kafka import Consumer

        self.reach()
        client: Consumer = self._client(Consumer, settings)
        return client

    def _client(self, kind: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka import KafkaException

        merged = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "dmq-cli",
            **settings,
            **self.client_config,
        }
        try:
            return kind(merged, logger=self._log.logger)
        except KafkaException as error:
            reason = error.args[0].str()
            raise usage(f"The client settings do not hold: {reason}") from error

    def reach(self, patience_s: float = CONNECT_TIMEOUT_S) -> None:
        """Fail soon when nobody is there: librdkafka would knock until its timeout."""
        problems = []
        deadline = time.monotonic() + patience_s
        for host, port in addresses(self.bootstrap):
            problem = knock(host, port, deadline - time.monotonic(), is_plain=self.is_plain)
            if not problem:
                return
            problems.append(f"{host}:{port} ({problem})")
        raise unreachable(", ".join(problems))

    def last_words(self) -> str:
        """What librdkafka last complained about, for an error that says why."""
        return self._log.last()


class _LastLines(logging.Handler):
    """Keeps librdkafka's last log lines instead of letting it print them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=_LOG_LINES_KEPT)
        self.logger = logging.Logger("librdkafka")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def last(self) -> str:
        """The last line without librdkafka's prefix: `FAIL [rdkafka#…] [thrd:…]: …`."""
        return self.lines[-1].rpartition("]: ")[2] if self.lines else ""


NO_METADATA_LEADER = "The cluster's metadata have no leader, so nothing can be changed"
LOOK_AT_STATUS = "See `dmq cluster status`: too few of the brokers that vote on them are up."


def no_metadata_leader() -> CommandError:
    """Somebody answers, but nobody can order anything."""
    return CommandError(NO_METADATA_LEADER, hint=LOOK_AT_STATUS)


def unreachable(where: str, why: str = "") -> CommandError:
    """Nobody answers."""
    return CommandError(
        f"No broker answers at {where}" + (f": {why}" if why else ""),
        hint="Start one with `dmq up`, or name another with --bootstrap-server.",
        code=Exit.NOT_REACHABLE,
    )


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port` → pairs; the port may be left out, IPv6 goes in brackets."""
    pairs = []
    for item in filter(None, (part.strip() for part in bootstrap.split(","))):
        item = item.rpartition("://")[2]
        bare_ipv6 = item.count(":") > 1 and not item.startswith("[")
        host, colon, port = (item, "", "") if bare_ipv6 else _host_port(item)
        if colon and not (port.isdecimal() and 0 < int(port) < 65536):
            raise usage(f"{item!r} is no address", "Write host:port, as in 127.0.0.1:9092.")
        pairs.append((host.strip("[]"), int(port) if port else PORT_DEFAULT))
    if not pairs:
        raise usage("No bootstrap server is given", "Write -b host:port.")
    return pairs


def _host_port(item: str) -> tuple[str, str, str]:
    if item.startswith("[") and item.endswith("]"):
        return item, "", ""
    host, colon, port = item.rpartition(":")
    return (host, colon, port) if colon else (item, "", "")


def key_values(items: Iterable[str], option: str) -> dict[str, str]:
    """`["a=1"]` → `{"a": "1"}`; the later of two wins."""
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise usage(f"{option} {item!r} has no name and value", f"Write {option} name=value.")
        pairs[key.strip()] = value.strip()
    return pairs


def client_settings(items: Iterable[str]) -> dict[str, str]:
    """Client settings from `name=value` words and from property files, in the order given."""
    settings: dict[str, str] = {}
    for item in items:
        if "=" in item:
            settings |= key_values([item], "--client-config")
        else:
            settings |= _properties(Path(item))
    return settings


def _properties(path: Path) -> dict[str, str]:
    try:
        text = path.expanduser().read_text()
    except FileNotFoundError as error:
        raise not_found(
            f"There is no client settings file {str(path)!r}",
            "Give --client-config a file of name=value lines, or one name=value.",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"The client settings file {str(path)!r} can't be read: {error}"
        ) from error
    lines = (line.strip() for line in text.splitlines())
    return key_values((line for line in lines if line and line[0] not in "#!"), str(path))
