"""`dmq serve`: a broker as a service. The options as typer sees them; `start` does the work.

In its plain form the command does not come this way (see `fast`): this is for `--help`, for slips
and for completion. The options here and in `fast.SERVE` are the same; a test holds them together.
"""

from typing import Annotated

import typer

from dmq.cli.command import command
from dmq.cli.exits import Exit
from dmq.cli.fast import Options
from dmq.cli.session import Session

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "serve",
    """
    dmq serve --config broker.yaml
    dmq serve --config broker.yaml --set node.id=2 --set logging.format=json
    DMQ_LOG_DIRS=/var/lib/dmq dmq serve
    """,
    cluster=False,
)
def serve(
    session: Session,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Settings: YAML, or Java .properties."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of `dmq config list`."),
    ] = None,
) -> Exit:
    """Run a broker as a service, until SIGTERM or Ctrl-C.

    A setting is taken from --set, else from its DMQ_ variable, else from the file, else it has its
    default. All problems are told at once. Every setting is explained by `dmq config list`. Exit
    code 70: the broker stopped itself because it could no longer keep its promises.
    """
    from dmq.cli import start

    options: Options = {
        "settings": settings or [],
        "quiet": session.output.quiet,
        "json": session.output.json,
        "no_color": not session.output.color,
    }
    options |= {"config": config} if config is not None else {}
    return Exit(start.serve(options))
