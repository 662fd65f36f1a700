"""`dmq doctor`: is this machine fit for a broker, and does the cluster work end to end.

Owns the order of the checks, their report and the exit code. The checks are in `doctor_local` and
`doctor_cluster`. Leaves nothing behind: files and the test topic are removed.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from dmq.cli.command import command
from dmq.cli.exits import Exit, usage
from dmq.cli.output import count_of
from dmq.cli.session import BOOTSTRAP_DEFAULT, PORT_DEFAULT, Session

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: `verdict` is ok, warn or fail; `advice` says what to do."""

    check: str
    verdict: str
    detail: str
    advice: str = ""


Check = Callable[[], Finding]


@command(
    app,
    "doctor",
    """
    dmq doctor
    dmq doctor --data /var/lib/dmq --local
    dmq doctor -b broker-1:9092 --remote --json
    """,
)
def doctor(
    session: Session,
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="The data directory to try.")
    ] = "dmq-data",
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", min=1, max=65535, help="The port a broker would use."
        ),
    ] = PORT_DEFAULT,
    local: Annotated[bool, typer.Option("--local", help="Only this machine.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="Only the cluster.")] = False,
) -> Exit:
    """Check this machine and the cluster, and say what to do about each trouble.

    Makes a topic of its own on the cluster for a round trip, and deletes it. Where nothing is said
    about the cluster, none at the default address is a warning, not a failure.
    """
    if local and remote:
        raise usage("--local and --remote contradict each other", "Give one of them.")
    found = []
    for finding in _checks(session, data, port, local=not remote, remote=not local):
        found.append(finding)
        if not session.output.json:
            _say(session, finding)
    failed = [finding for finding in found if finding.verdict == "fail"]
    warned = sum(finding.verdict == "warn" for finding in found)
    if session.output.json:
        checks = [asdict(finding) for finding in found]
        session.output.emit({"ok": not failed, "warnings": warned, "checks": checks})
    else:
        session.output.note(
            f"{count_of(len(found), 'check')}: {count_of(len(failed), 'failure')}, "
            + count_of(warned, "warning")
        )
    if [finding.check for finding in failed] == ["broker"]:
        return Exit.NOT_REACHABLE
    return Exit.FAILURE if failed else Exit.OK


def _checks(
    session: Session, data: str, port: int, *, local: bool, remote: bool
) -> Iterator[Finding]:
    if local:
        from dmq.cli.doctor_local import checks

        yield from (check() for check in checks(data, port))
    if remote:
        from dmq.cli.doctor_cluster import broker, checks_of

        reached = broker(session, is_asked_for=not local or _is_named(session))
        yield reached
        if reached.verdict == "ok":
            yield from (check() for check in checks_of(session))


def _is_named(session: Session) -> bool:
    return session.bootstrap != BOOTSTRAP_DEFAULT


def _say(session: Session, finding: Finding) -> None:
    word = session.output.verdict(finding.verdict)
    pad = " " * (4 - len(finding.verdict))
    session.output.say(f"{word}{pad}  {finding.check}: {finding.detail}")
    if finding.advice:
        session.output.say(f"      → {finding.advice}")
