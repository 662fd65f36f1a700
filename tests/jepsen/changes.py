"""A cluster in racks whose changes of membership leave room for something else to happen meanwhile.

`Cluster.add` and `Cluster.remove` return when all is done. Here they are context managers: the change
begins, what is inside of `with` happens, then the change has to come to its end. Called by the nemesis.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dmq.cli.exits import Exit
from dmq.testing import BrokerFailedError, Cluster
from dmq.testing.defaults import START_PATIENCE_S
from dmq.testing.member import Member

REMOVE_PATIENCE_S = 120.0
RACKS = ("r1", "r2", "r3")
"""The brokers' racks, in turns. With three replicas, each rack has one of every partition."""


class ChangingCluster(Cluster):
    """A cluster for the nemesis."""

    calls_again = 0
    """How often `dmq cluster decommission` had to be called once more."""

    def _new_member(self, settings: Mapping[str, Any] | None = None) -> Member:
        member = super()._new_member(settings)
        rack = RACKS[(member.place.slot - 1) % len(RACKS)]
        member._settings = {**member._settings, "broker.rack": rack}
        return member

    @contextlib.contextmanager
    def adding(self, settings: Mapping[str, Any] | None = None) -> Iterator[Member]:
        """One more broker, which joins meanwhile; its node id is known at the end. Until then its number
        here is negative, so that it is cut off from others like everybody."""
        member = self._new_member(settings)
        number = -member.place.slot
        self._members[number] = member
        try:
            self._spawn(member)
            yield member
            member.wait_for_ready_line()
        except BaseException:
            self.heal(number)
            member.kill()
            self._is_down(member)
            del self._members[number]
            raise
        del self._members[number]
        assert member.node not in self._members, f"node id {member.node} was given twice"
        self._members[member.node] = member
        self._cuts = {
            (member.node if source == number else source, member.node if to == number else to)
            for source, to in self._cuts
        }

    @contextlib.contextmanager
    def removing(self, broker: int) -> Iterator[None]:
        """Take a broker out (`dmq cluster decommission`), then stop it for good. If the command can't do
        it because of what happens meanwhile, it is called again afterwards, as an operator would; that
        one has to succeed."""
        words = self.folder / "decommission.log"
        command = self._decommission(broker, words)
        try:
            yield
            code = _wait(command)
            if code:
                self.calls_again += 1
                command = self._decommission(broker, words)
                code = _wait(command)
                if code == Exit.NOT_FOUND:  # The first call came further than it could tell.
                    what = f"broker {broker} is forgotten"
                    self._eventually(lambda: self._is_forgotten(broker), what, START_PATIENCE_S)
                    code = Exit.OK
        finally:
            command.kill()
            command.wait()
        if code:
            said = words.read_text()
            raise BrokerFailedError(f"broker {broker} could not be removed, code {code}:\n{said}")
        self.stop(broker)
        del self._members[broker]

    def _is_forgotten(self, broker: int) -> bool:
        views = self.views()
        views.pop(broker, None)
        return bool(views) and all(broker not in seen.brokers for seen in views.values())

    def _decommission(self, broker: int, words: Path) -> "subprocess.Popen[bytes]":
        others = ",".join(self.member(node).bootstrap for node in self.running if node != broker)
        command = ["cluster", "decommission", str(broker), "--yes", "--bootstrap-server", others]
        with words.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "dmq", *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )


def _wait(command: "subprocess.Popen[bytes]") -> int:
    """Its exit code; -1 if it does not come to an end."""
    try:
        return command.wait(REMOVE_PATIENCE_S)
    except subprocess.TimeoutExpired:
        command.kill()
        command.wait()
        return -1
