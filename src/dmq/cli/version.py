"""`dmq version`: which dmq, on which Python, with which libraries."""

import platform
from importlib.metadata import PackageNotFoundError, version

import typer

from dmq import __version__
from dmq.cli.command import command
from dmq.cli.session import Session

app = typer.Typer(rich_markup_mode="rich", add_completion=False)
LIBRARIES = ("confluent-kafka", "crc32c", "cramjam", "lz4", "uvloop", "typer", "rich", "pyyaml")


@command(app, "version", "dmq version\ndmq version --json", cluster=False)
def show(session: Session) -> None:
    """Print the version of dmq, Python and the libraries it uses."""
    libraries = {name: installed(name) for name in LIBRARIES}
    if session.output.json:
        session.output.emit(
            {"dmq": __version__, "python": platform.python_version(), "libraries": libraries}
        )
        return
    session.output.say(f"dmq {__version__} (Python {platform.python_version()})")
    if not session.output.quiet:
        for name, text in libraries.items():
            session.output.say(f"  {name} {text or 'not installed'}")


def installed(name: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
