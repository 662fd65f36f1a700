"""TLS and SASL of a connection, from the `kafka.*` options that Spark's Kafka source takes.

Both spellings are understood: Java's (`kafka.sasl.jaas.config`, `kafka.ssl.truststore.location` with
PEM files) and librdkafka's (`kafka.sasl.username`, `kafka.ssl.ca.location`). Java keystores are not
read: the error says how to turn one into PEM. Mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.
"""

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
import socket
import ssl
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass

from dmq.spark.failures import SparkSourceError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECURITY_OPTIONS = frozenset({
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password",
    "sasl.jaas.config", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
    "ssl.key.password", "ssl.truststore.location", "ssl.truststore.type",
    "ssl.truststore.certificates", "ssl.keystore.location", "ssl.keystore.type",
    "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification",
})  # fmt: skip
"""Names without the leading `kafka.`, in lower case."""

SCRAM_ITERATIONS_MAX = 10_000_000
"""More than any server asks for: a server must not keep us busy for hours."""

_JAAS_VALUE = r'\b{}\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s;"\']+))'


@dataclass(frozen=True)
class Security:
    """How connections are secured. Holds the password: never printed."""

    uses_tls: bool = False
    mechanism: str = ""
    username: str = ""
    password: str = ""
    ca_file: str | None = None
    ca_text: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    key_pair_text: str | None = None
    """The certificates of this client and their private key, as PEM."""
    checks_name: bool = True
    checks_certificate: bool = True

    def __repr__(self) -> str:
        return f"Security(uses_tls={self.uses_tls}, mechanism={self.mechanism!r})"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Security":
        """From client options without their `kafka.`. Raises SparkSourceError."""
        protocol = options.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise SparkSourceError(
                f"kafka.security.protocol={protocol!r}: choose one of {', '.join(PROTOCOLS)}"
            )
        mechanism = username = password = ""
        if protocol.startswith("SASL_"):
            mechanism, username, password = _login(options)
        return cls(
            uses_tls=protocol.endswith("SSL"),
            mechanism=mechanism,
            username=username,
            password=password,
            ca_file=options.get("ssl.ca.location") or _pem(options, "truststore"),
            ca_text=options.get("ssl.truststore.certificates"),
            certificate_file=options.get("ssl.certificate.location") or _pem(options, "keystore"),
            key_file=options.get("ssl.key.location"),
            key_password=options.get("ssl.key.password"),
            key_pair_text=_key_pair(options),
            checks_name=options.get("ssl.endpoint.identification.algorithm", "https").lower()
            not in ("", "none"),
            checks_certificate=options.get("enable.ssl.certificate.verification", "true").lower()
            != "false",
        )

    def wrap(self, plain: socket.socket, where: str, host: str) -> socket.socket:
        """The socket to speak on: itself, or TLS over it. Raises SparkSourceError."""
        if not self.uses_tls:
            return plain
        try:
            return self._context().wrap_socket(plain, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise SparkSourceError(
                f"the certificate of {where} is not accepted: {error.verify_message}; give the file of"
                " the authority that signed it as kafka.ssl.ca.location (PEM), and connect by a name"
                " that is in the certificate"
            ) from error
        except ssl.SSLError as error:
            raise SparkSourceError(
                f"no TLS with {where}: {error}; check kafka.security.protocol and the port in"
                " kafka.bootstrap.servers"
            ) from error

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file, cadata=self.ca_text)
            if self.key_pair_text:
                with _as_file(self.key_pair_text) as file:
                    context.load_cert_chain(file, password=self._password)
            elif self.certificate_file:
                context.load_cert_chain(self.certificate_file, self.key_file, self._password)
        except (OSError, ssl.SSLError) as error:
            files = [f for f in (self.ca_file, self.certificate_file, self.key_file) if f]
            raise SparkSourceError(
                f"the TLS files and options cannot be read ({', '.join(files) or 'no files'}): {error};"
                " they must be PEM; files must lie at the same path on the driver and on every"
                " executor, and an encrypted key needs kafka.ssl.key.password"
            ) from error
        if not (self.checks_name and self.checks_certificate):
            context.check_hostname = False
        if not self.checks_certificate:
            context.verify_mode = ssl.CERT_NONE
        return context

    @property
    def _password(self) -> str:
        """Never None: OpenSSL would ask the terminal for that of an encrypted key, and wait."""
        return self.key_password or ""

    def exchange(self) -> Generator[bytes, bytes, None]:
        """The client's side of a login: yields what to send, is sent what came back."""
        if self.mechanism == "PLAIN":
            yield f"\0{self.username}\0{self.password}".encode()
            return
        yield from _scram(self.mechanism, self.username, self.password)


def _login(options: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms") or ""
    if mechanism.upper() not in MECHANISMS:
        raise SparkSourceError(
            f"kafka.sasl.mechanism={mechanism!r}: choose one of {', '.join(MECHANISMS)}"
        )
    jaas = options.get("sasl.jaas.config", "")
    username = options.get("sasl.username") or _from_jaas(jaas, "username")
    password = options.get("sasl.password") or _from_jaas(jaas, "password")
    if not username or not password:
        raise SparkSourceError(
            "a SASL login needs kafka.sasl.username and kafka.sasl.password, or"
            ' kafka.sasl.jaas.config with username="…" password="…"'
        )
    return mechanism.upper(), username, password


def _from_jaas(jaas: str, name: str) -> str:
    found = re.search(_JAAS_VALUE.format(name), jaas)
    if found is None:
        return ""
    quoted, single, bare = found.groups()
    return re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else single or bare or ""


def _pem(options: Mapping[str, str], store: str) -> str | None:
    location = options.get(f"ssl.{store}.location")
    if location and options.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
        raise SparkSourceError(
            f"kafka.ssl.{store}.location is a Java keystore, which this source does not read; make a"
            f" PEM file of it (keytool -exportcert -rfc …, or openssl pkcs12 -in … -out … -nodes) and"
            f" give that with kafka.ssl.{store}.type=PEM"
        )
    return location


def _key_pair(options: Mapping[str, str]) -> str | None:
    chain, key = options.get("ssl.keystore.certificate.chain"), options.get("ssl.keystore.key")
    if not chain and not key:
        return None
    if not chain or not key:
        raise SparkSourceError(
            "a client's certificate needs both kafka.ssl.keystore.certificate.chain and"
            " kafka.ssl.keystore.key, as PEM"
        )
    return f"{key.strip()}\n{chain.strip()}\n"


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """OpenSSL reads keys from files only: one that nobody else may read, for a moment."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def _scram(mechanism: str, username: str, password: str) -> Generator[bytes, bytes, None]:
    """RFC 5802 without channel binding, as Kafka has it."""
    algorithm = "sha256" if mechanism.endswith("256") else "sha512"
    nonce = secrets.token_urlsafe(24)
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = (yield f"n,,{first}".encode()).decode()
    fields = _fields(challenge)
    joined, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
    if not joined.startswith(nonce) or not 4096 <= iterations <= SCRAM_ITERATIONS_MAX:
        raise SparkSourceError(
            "the broker's SCRAM challenge is not acceptable: is this the broker?"
        )
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    final = f"c=biws,r={joined}"
    signed = f"{first},{challenge},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    expected = base64.b64encode(hmac.digest(server_key, signed, algorithm)).decode()
    if not hmac.compare_digest(_fields(answer.decode()).get("v", ""), expected):
        raise SparkSourceError("the broker does not know the password: this may be another server")


def _fields(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}
