"""`dmq log dump`: what is in segments, indexes and the journal, and whether it is sound.

Owns the options, the filter and the exit code. Reads files, needs no broker, changes nothing.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit
from dmq.cli.output import count_of
from dmq.cli.plain_help import PlainGroup
from dmq.cli.session import Session

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look into the files of a log.",
)


@app.callback()
def log() -> None:
    """Look into the files of a log."""


@command(
    app,
    "dump",
    """
    dmq log dump ./data
    dmq log dump ./data/logs/3/00000000000000000000.log --records
    dmq log dump ./data/journal --summary
    dmq log dump /var/lib/kafka/orders-0 --records --json
    """,
    cluster=False,
)
def dump(
    session: Session,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A data directory, a log's directory, or one file.",
            show_default=False,
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Open the batches: keys, values, headers.")
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="Only one verdict per file, and the problems.")
    ] = False,
) -> Exit:
    """Show segments, indexes and the journal, and verify every CRC.

    Reads the segments of Apache Kafka too. Nothing is changed, and a broker may be running; what it
    is just writing may look torn. With --json one object per line. The exit code is 1 when
    something is damaged.
    """
    from dmq.cli.log_dump import events_of
    from dmq.cli.log_show import lines_of

    problems = 0
    try:
        for event in events_of(path.expanduser(), records=records):
            problems += event["type"] == "problem"
            if summary and event["type"] in ("batch", "journal_record", "index_entry"):
                continue
            if session.output.json:
                print(json.dumps(event, ensure_ascii=False))
            else:
                print("\n".join(lines_of(event)))
    except PermissionError as error:
        raise CommandError(f"{error.filename} can't be read: {error.strerror}") from error
    sys.stdout.flush()
    if problems:
        session.output.error(f"{count_of(problems, 'problem')} found")
    return Exit.FAILURE if problems else Exit.OK
