"""What `dmq doctor` finds on this machine."""

import json
import os
import socket
from pathlib import Path

import pytest

from dmq.cli import doctor_local
from dmq.cli.app import run
from dmq.cli.doctor_local import data_directory, free_space, port_free, sync_speed


def test_a_working_machine_passes_and_nothing_is_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert run(["doctor", "--local", "--json", "--data", str(data)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    found = {check["check"]: check for check in report["checks"]}
    assert found["wheels"]["verdict"] == "ok"
    assert found["checksum"]["verdict"] == "ok"
    assert not data.exists()
    assert list(tmp_path.iterdir()) == []


def test_every_trouble_comes_with_advice() -> None:
    finding = data_directory(Path("/proc/dmq-can-not-be-here"))
    assert finding.verdict == "fail"
    assert finding.advice
    assert sync_speed(Path("/proc/dmq-can-not-be-here")).verdict == "fail"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_of_somebody_else_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert data_directory(tmp_path).verdict == "fail"
    finally:
        tmp_path.chmod(0o700)


def test_too_little_space_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_local, "SPACE_GOOD_BYTES", 1 << 62)
    assert free_space(tmp_path).verdict == "warn"
    monkeypatch.setattr(doctor_local, "SPACE_MIN_BYTES", 1 << 62)
    assert free_space(tmp_path).verdict == "fail"


def test_a_slow_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_local, "SYNC_GOOD_MS", 0.0)
    assert sync_speed(tmp_path).verdict == "warn"
    monkeypatch.setattr(doctor_local, "SYNC_MAX_MS", 0.0)
    finding = sync_speed(tmp_path)
    assert finding.verdict == "fail"
    assert "async" in finding.advice


def test_a_port_held_by_a_stranger_is_a_warning() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        finding = port_free(port)
    assert finding.verdict == "warn"
    assert "--port" in finding.advice
    assert port_free(port).verdict == "ok"
