"""`dmq up`: a broker, or a few, in this terminal. The options as typer sees them; `start` does the work.

In its plain form the command does not come this way (see `fast`): this is for `--help`, for slips
and for completion. The options here and in `fast.UP` are the same; a test holds them together.
"""

from typing import Annotated

import typer

from dmq.cli.command import command
from dmq.cli.exits import Exit
from dmq.cli.fast import Options
from dmq.cli.session import PORT_DEFAULT, Session
from dmq.cli.start import BROKERS_MAX, DURABILITIES

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "up",
    """
    dmq up
    dmq up --brokers 3
    dmq up --data ./data --port 19092
    dmq up --durability async --set num.partitions=6 --set logging.level=debug
    """,
    cluster=False,
)
def up(
    session: Session,
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers",
            metavar="N",
            min=1,
            help=f"How many, {BROKERS_MAX} at most; more than one form a cluster.",
        ),
    ] = 1,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help="Where records live; else a temporary folder."),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", min=0, max=65535, help="Of the Kafka door; 0 is any free one."
        ),
    ] = PORT_DEFAULT,
    durability: Annotated[
        str,
        typer.Option(
            "--durability",
            metavar="|".join(DURABILITIES),
            help="sync: on disk before the acknowledgement; async: soon after.",
        ),
    ] = "sync",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of `dmq config list`."),
    ] = None,
) -> Exit:
    """Start a broker here and now, or a cluster of them; Ctrl-C stops it.

    Without --data its records live in a temporary folder that is removed at the end. Settings also
    come from DMQ_ variables, like DMQ_NUM_PARTITIONS. Several brokers are processes of their own, with
    ports 10 apart; one that is killed is reported, and the others go on. For a service use `dmq serve`.
    """
    from dmq.cli import start

    options: Options = {
        "brokers": str(brokers),
        "settings": settings or [],
        "quiet": session.output.quiet,
        "json": session.output.json,
        "no_color": not session.output.color,
    }
    options |= {"port": str(port)} if port != PORT_DEFAULT else {}
    options |= {"durability": durability} if durability != "sync" else {}
    options |= {"data": data} if data is not None else {}
    return Exit(start.up(options))
