"""TLS of the data source's connections, with a server that wants the client's certificate."""

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmq.spark.failures import SparkSourceError
from dmq.spark.security import Security

PASSWORD = "of-the-key"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that signs itself, its key, and the key encrypted."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    made = tmp_path_factory.mktemp("tls")
    for command in (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
        " -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem",
        f"pkcs8 -topk8 -in key.pem -out locked.pem -passout pass:{PASSWORD}",
    ):
        subprocess.run(["openssl", *command.split()], cwd=made, check=True, capture_output=True)
    return made


@pytest.fixture
def server(folder: Path) -> Iterator[int]:
    """A port where a client is greeted by the name in its certificate, which it must have."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "cert.pem"))
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as secure:
            names = dict(field[0] for field in secure.getpeercert()["subject"])
            secure.sendall(names["commonName"].encode())

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    thread.join(60)
    listener.close()


def options(folder: Path, **more: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"security.protocol": "SSL", "ssl.ca.location": str(folder / "cert.pem"), **named}


def greeting(security: Security, port: int) -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        security.wrap(plain, "here", "localhost") as secure,
    ):
        return secure.recv(100)


@pytest.mark.parametrize("key", ["key.pem", "locked.pem"])
def test_a_certificate_in_the_options_is_shown_to_the_broker(
    key: str, folder: Path, server: int
) -> None:
    security = Security.of(
        options(
            folder,
            ssl_keystore_type="PEM",
            ssl_keystore_certificate_chain=(folder / "cert.pem").read_text(),
            ssl_keystore_key=(folder / key).read_text(),
            ssl_key_password=PASSWORD,
        )
    )
    assert greeting(security, server) == b"localhost"


def test_a_certificate_in_files_is_shown_to_the_broker(folder: Path, server: int) -> None:
    files = {"ssl_certificate_location": "cert.pem", "ssl_key_location": "key.pem"}
    named = {name: str(folder / file) for name, file in files.items()}
    assert greeting(Security.of(options(folder, **named)), server) == b"localhost"


def test_half_a_key_pair_and_a_key_that_can_not_be_opened_are_told(folder: Path) -> None:
    chain = {"ssl_keystore_certificate_chain": (folder / "cert.pem").read_text()}
    with pytest.raises(SparkSourceError, match=r"needs both .*certificate\.chain.*keystore\.key"):
        Security.of(options(folder, **chain))
    locked = {**chain, "ssl_keystore_key": (folder / "locked.pem").read_text()}
    security = Security.of(options(folder, **locked))
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SparkSourceError, match=r"needs kafka\.ssl\.key\.password"):
        security.wrap(ours, "here", "localhost")
    assert "BEGIN" not in repr(security)
