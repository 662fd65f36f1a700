"""`dmq pipeline package`: dmq as a file that goes to Spark's executors with a job."""

from pathlib import Path
from typing import Annotated

import typer

from dmq.cli.command import command
from dmq.cli.output import count_of
from dmq.cli.pipeline_common import mended
from dmq.cli.session import Session

app = typer.Typer()


@command(
    app,
    "package",
    """
    dmq pipeline package dmq.zip && spark-submit --py-files dmq.zip job.py
    """,
    cluster=False,
)
def package(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE.zip", show_default=False)],
) -> None:
    """Write a zip file of this dmq, for Spark clusters whose hosts do not have it.

    Libraries with compiled code (pyarrow, numpy, … : it says which) must be installed on the hosts.
    """
    from dmq.spark.pipelines.packing import NEEDED, pack

    with mended():
        count = pack(file)
    size = file.stat().st_size
    if session.output.json:
        session.output.emit({"file": str(file), "files": count, "bytes": size})
        return
    session.output.say(f"wrote {file}: {count_of(count, 'file')}, {size:,} bytes")
    session.output.note(f"Executors must have {', '.join(NEEDED)} installed.")
