"""What every command has in common: shared options, examples in its help, one way to end.

Owns the decorator that turns a function of (session, own options) into a typer command: it adds the
shared options, builds the `Session`, and turns failures and Ctrl-C into sentences and exit codes.
Never imports librdkafka or rich.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dmq.cli.exits import CommandError, Exit
from dmq.cli.output import Output
from dmq.cli.plain_help import PlainCommand
from dmq.cli.session import BOOTSTRAP_DEFAULT, Session, client_settings

_CLUSTER = "Cluster"
_OUTPUT = "Output"

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        help=f"Where the cluster is. $DMQ_BOOTSTRAP_SERVERS; else {BOOTSTRAP_DEFAULT}.",
        rich_help_panel=_CLUSTER,
        show_default=False,
    ),
]
ClientConfig = Annotated[
    list[str] | None,
    typer.Option(
        "--client-config",
        metavar="NAME=VALUE|FILE",
        help="A librdkafka setting (TLS, SASL, …) or a file of them. $DMQ_CLIENT_CONFIG: a file.",
        rich_help_panel=_CLUSTER,
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.", rich_help_panel=_OUTPUT)]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No notes and no progress.", rich_help_panel=_OUTPUT),
]
NoColor = Annotated[
    bool, typer.Option("--no-color", help="No colours ($NO_COLOR).", rich_help_panel=_OUTPUT)
]

_VOICE: dict[str, tuple[Any, Any]] = {
    "json": (Json, False),
    "quiet": (Quiet, False),
    "no_color": (NoColor, False),
}
_PLACE: dict[str, tuple[Any, Any]] = {
    "bootstrap": (Bootstrap, None),
    "client_config": (ClientConfig, None),
}
SHARED = _PLACE | _VOICE
"""Shared options: parameter → (type, default). They may stand before and after the command."""


def command(
    app: typer.Typer, name: str, examples: str, *, cluster: bool = True
) -> Callable[[Callable[..., Exit | None]], Callable[..., Exit | None]]:
    """Register a function whose first parameter is the `Session`; the rest are its options."""

    def register(function: Callable[..., Exit | None]) -> Callable[..., Exit | None]:
        shared = SHARED if cluster else _VOICE
        text = paragraphs(inspect.getdoc(function) or "")
        run = _with_shared(function, shared)
        app.command(name, cls=PlainCommand, help=text, epilog=_examples(examples))(run)
        return function

    return register


def paragraphs(text: str) -> str:
    """Lines joined to paragraphs, so that they are as wide as the terminal is."""
    return "\n\n".join(part.replace("\n", " ") for part in text.split("\n\n"))


def _examples(text: str) -> str:
    """The epilog; rich would take a bracket for markup, typer would cut off common indentation."""
    lines = inspect.cleandoc(text).splitlines()
    indented = "\n".join("  " + line.replace("[", r"\[") for line in lines)
    return f"Examples:\n{indented}\n\nExit codes: see `dmq --help`."


def _with_shared(
    function: Callable[..., Exit | None], shared: dict[str, tuple[Any, Any]]
) -> Callable[..., None]:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("ctx", keyword, annotation=typer.Context)]
    parameters += [parameter.replace(kind=keyword) for parameter in own]
    parameters += [
        inspect.Parameter(name, keyword, annotation=kind, default=default)
        for name, (kind, default) in shared.items()
    ]

    @functools.wraps(function)
    def run(ctx: typer.Context, **values: Any) -> None:
        given = {name: values.pop(name) for name in shared}
        with_parents = _merged(ctx, given)
        raise typer.Exit(
            int(guarded(lambda: function(session_of(with_parents), **values), with_parents))
        )

    signature = inspect.Signature(parameters)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _merged(ctx: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """The command's own values, and where it gives none, those before the command's name."""
    outer = ctx.find_root().obj
    merged: dict[str, Any] = dict(outer) if isinstance(outer, dict) else {}
    merged |= {name: value for name, value in given.items() if value}
    return merged


def session_of(given: dict[str, Any]) -> Session:
    """The session that the shared options ask for."""
    files = [name for name in [os.environ.get("DMQ_CLIENT_CONFIG", "")] if name]
    bootstrap = given.get("bootstrap") or os.environ.get("DMQ_BOOTSTRAP_SERVERS")
    settings = client_settings([*files, *(given.get("client_config") or [])])
    return Session(bootstrap or BOOTSTRAP_DEFAULT, settings, _output(given))


def _output(given: dict[str, Any]) -> Output:
    return Output(
        json=bool(given.get("json")),
        quiet=bool(given.get("quiet")),
        color=not given.get("no_color"),
    )


def guarded(call: Callable[[], Exit | None], given: dict[str, Any] | None = None) -> Exit:
    """Run a command to its exit code; what a person may see of an error is a sentence."""
    try:
        code = call() or Exit.OK
        sys.stdout.flush()
    except CommandError as error:
        _output(given or {}).error(error.message, error.hint)
        return error.code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, `less`) has seen enough: no failure. The interpreter would complain
        # when it flushes stdout at exit, so stdout goes where nobody is.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.OK
    return code
