"""The tree of commands: names, one-line helps and where each lives. Nothing runs here.

A command's module is imported when the command is called, or when help lists it. Called by `main`,
except for `up` and `serve` in their plain form, which do not wait for typer (see `fast`).
"""

from importlib import import_module
from typing import Annotated, Any

import typer

from dmq.cli.command import Bootstrap, ClientConfig, Json, NoColor, Quiet, paragraphs
from dmq.cli.exits import MEANING
from dmq.cli.plain_help import PlainGroup

_MODULES = {
    "up": "dmq.cli.up",
    "serve": "dmq.cli.serve",
    "topic": "dmq.cli.topic",
    "produce": "dmq.cli.produce",
    "consume": "dmq.cli.consume",
    "group": "dmq.cli.group",
    "txn": "dmq.cli.txn",
    "cluster": "dmq.cli.cluster",
    "partition": "dmq.cli.partition",
    "pipeline": "dmq.cli.pipeline",
    "doctor": "dmq.cli.doctor",
    "config": "dmq.cli.config",
    "log": "dmq.cli.log",
    "version": "dmq.cli.version",
}


class LazyGroup(PlainGroup):
    """A group that imports a command's module when somebody asks for the command."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command, in the order of a first day's use."""
        return list(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now."""
        if cmd_name not in _MODULES:
            return None
        if cmd_name not in self.commands:
            built = typer.main.get_command(import_module(_MODULES[cmd_name]).app)
            built.name = cmd_name
            self.commands[cmd_name] = built
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; on a slip of the finger, suggest from all names."""
        if args and args[0] not in _MODULES:
            for name in _MODULES:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


_EXITS = ", ".join(f"{code.value} {text}" for code, text in MEANING.items())

app = typer.Typer(
    name="dmq",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=(
        "First steps:\n"
        "  dmq up                                  a broker on 127.0.0.1:9092\n"
        "  dmq produce greetings hello world       two records\n"
        "  dmq consume greetings                   read them back\n\n"
        f"Exit codes: {_EXITS}."
    ),
)


_ABOUT = """A distributed message queue that speaks the Kafka protocol.

The commands work with any Kafka cluster. Options of the groups Cluster and Output may stand before
or after the command's name."""


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from dmq import __version__

        print(f"dmq {__version__}")
        raise typer.Exit


@app.callback(help=paragraphs(_ABOUT))
def root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Print it and exit."
        ),
    ] = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    json: Json = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Keep the shared options that stand before the command's name."""
    ctx.obj = {
        "bootstrap": bootstrap,
        "client_config": client_config,
        "json": json,
        "quiet": quiet,
        "no_color": no_color,
    }


def run(args: list[str]) -> int:
    """Run one command line to its exit code."""
    command = typer.main.get_command(app)
    try:
        command.main(args=args, prog_name="dmq")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0
