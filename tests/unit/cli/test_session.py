"""Addresses, client settings and the failure when nobody listens."""

import socket
from pathlib import Path

import pytest
from fakes.ports import closed_port

from dmq.cli.exits import CommandError, Exit
from dmq.cli.session import Session, addresses, client_settings, key_values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h:1", [("h", 1)]),
        ("h", [("h", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:7", [("::1", 7)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("SASL_SSL://h:5", [("h", 5)]),
    ],
)
def test_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert addresses(text) == expected


@pytest.mark.parametrize("text", ["", " , ", "h:", "h:x", "h:0", "h:70000"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(CommandError) as error:
        addresses(text)
    assert error.value.code is Exit.USAGE


def test_key_values() -> None:
    assert key_values(["a=1", "b = x=y", "a=2"], "-c") == {"a": "2", "b": "x=y"}
    for bad in ("a", "=1", ""):
        with pytest.raises(CommandError, match="-c"):
            key_values([bad], "-c")


def test_client_settings_from_words_and_files_the_later_wins(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# login\nsasl.username = u\n\n! old style\nsasl.password=p=w\n")
    settings = client_settings(["sasl.username=x", str(path), "sasl.mechanism=PLAIN"])
    assert settings == {"sasl.username": "u", "sasl.password": "p=w", "sasl.mechanism": "PLAIN"}


def test_a_missing_settings_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as error:
        client_settings([str(tmp_path / "none.properties")])
    assert error.value.code is Exit.NOT_FOUND


def test_nobody_listening_is_told_at_once_with_what_to_do() -> None:
    with (
        closed_port() as port,
        pytest.raises(CommandError, match=f"127.0.0.1:{port}.*refused") as error,
    ):
        Session(f"127.0.0.1:{port}", {}).reach()
    assert error.value.code is Exit.NOT_REACHABLE
    assert "dmq up" in error.value.hint


def test_one_address_of_several_is_enough() -> None:
    with closed_port() as nobody, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        several = f"127.0.0.1:{nobody},127.0.0.1:{port}"
        Session(several, {"security.protocol": "SSL"}).reach()


def test_bootstrap_servers_among_the_client_settings_win() -> None:
    session = Session("a:1", {"bootstrap.servers": "b:2", "security.protocol": "SSL"})
    assert session.bootstrap == "b:2"
    assert not session.is_plain
    assert Session("a:1", {}).is_plain
