"""`dmq pipeline audit`: is everything there, once and in order?

Owns the options, the report for people and the exit code; the jobs are `dmq.spark.pipelines.audit`.
"""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dmq.cli.command import command
from dmq.cli.completing import topic_names
from dmq.cli.exits import CommandError, Exit, usage
from dmq.cli.output import Column, Output, count_of
from dmq.cli.pipeline_common import Conf, Master, mended, spark_options, where_of
from dmq.cli.session import REQUEST_TIMEOUT_S, Session, client_settings

if TYPE_CHECKING:
    from dmq.spark.pipelines.findings import Report
    from dmq.spark.pipelines.sessions import Where

app = typer.Typer()


@command(
    app,
    "audit",
    """
    dmq pipeline audit orders payments
    dmq pipeline audit orders --id '$.order_id' --sequence '$.version'
    dmq pipeline audit orders --table ./lake/orders
    dmq pipeline audit orders --against other-1:9092 --json
    """,
)
def audit(
    session: Session,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)
    ],
    id_: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="WHAT", help="Must differ between records: key, value, $.json.path."
        ),
    ] = None,
    sequence: Annotated[
        str | None,
        typer.Option(
            "--sequence", metavar="WHAT", help="A number that rises by one in each key: $.version."
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="DIR", help="Against this table of `dmq pipeline land`."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="HOST:PORT,…", help="Against this other cluster."),
    ] = None,
    against_config: Annotated[
        list[str] | None,
        typer.Option(
            "--against-config",
            metavar="NAME=VALUE|FILE",
            help="As --client-config, for the other cluster; repeatable.",
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> Exit:
    """Audit topics with Spark: counts, gaps, duplicates, order per key, checksums.

    Committed records are read, from the beginning to the end as it is when the audit starts. Offsets
    without a record are explained by what is in the log (transaction markers, aborted transactions,
    compaction) or are a finding. Exit code 1 if there are findings.
    """
    if table is not None and len(topics) != 1:
        raise usage("A table is of one topic", "Name that topic only.")
    if against_config and against is None:
        raise usage("--against-config is for --against", "Say which cluster.")
    session.reach()
    with mended():
        where = where_of(master, conf)
        report = _audited(session, topics, (id_, sequence), table, (against, against_config), where)
    if session.output.json:
        session.output.emit(report.as_json())
    else:
        show(session.output, report)
    return Exit.FAILURE if report.findings else Exit.OK


def _audited(
    session: Session,
    topics: list[str],
    expressions: tuple[str | None, str | None],
    table: str | None,
    other: tuple[str | None, list[str] | None],
    where: "Where",
) -> "Report":
    from pyspark.errors import PySparkException

    from dmq.spark.pipelines import audit as job
    from dmq.spark.pipelines import audit_against
    from dmq.spark.pipelines.failures import first_line
    from dmq.spark.pipelines.findings import Report
    from dmq.spark.pipelines.landing import CONF
    from dmq.spark.pipelines.sessions import classic

    options = spark_options(session)
    began = time.monotonic()
    report = Report()
    checks = job.Checks(*expressions)
    for each in filter(None, expressions):
        job.check_expression(each)
    landed = audit_against.table_at(table) if table is not None else None
    subject = job.subject_of(session.bootstrap, options, topics)
    against, against_config = other
    right, right_compacted = None, frozenset[str]()
    if against is not None:
        settings = client_settings(against_config or []) | {"bootstrap.servers": against}
        there = Session(against, settings, session.output)
        right = job.subject_of(against, spark_options(there), topics)
        right_compacted = _compacted(there, topics)
    log = Path(tempfile.gettempdir()) / "dmq-audit-spark.log"
    session.output.note(f"Auditing {', '.join(topics)} on {where} (Spark's log: {log})")
    compacted = _compacted(session, topics)
    try:
        with (
            session.output.progress("auditing"),
            classic(where, f"dmq audit {' '.join(topics)}", log, CONF) as spark,
        ):
            job.audit(spark, subject, checks, report, compacted)
            if right is not None:
                job.audit(spark, right, checks, report, right_compacted)
                audit_against.against_cluster(spark, subject, right, report)
            if landed is not None:
                audit_against.against_table(spark, landed, subject, report, compacted)
    except PySparkException as error:
        raise CommandError(f"The audit failed: {first_line(error)}", hint=f"See {log}.") from error
    report.seconds = time.monotonic() - began
    return report


def _compacted(session: Session, topics: list[str]) -> frozenset[str]:
    """Topics whose logs are compacted: there, offsets go missing by design."""
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    admin = session.admin()  # Answers come as long as there is one.
    answers = admin.describe_configs(asked, request_timeout=REQUEST_TIMEOUT_S)
    found = set()
    for resource, future in answers.items():
        policy = future.result().get("cleanup.policy")
        if policy is not None and "compact" in policy.value:
            found.add(resource.name)
    return frozenset(found)


def show(output: Output, report: "Report") -> None:
    """The report for people."""
    columns = [Column("cluster"), Column("topic"), Column("partition", True)]
    columns += [Column("first", True), Column("last", True), Column("records", True)]
    columns += [Column("gaps", True), Column("checksum")]
    output.table(
        columns,
        (
            [p.cluster, p.topic, p.partition, p.first, p.last, f"{p.records:,}", p.gaps, p.checksum]
            for p in report.partitions
        ),
    )
    for check in report.checks:
        output.say(f"looked at {check}")
    for note in report.notes:
        output.say(f"note: {note}")
    for finding in report.findings:
        where = f"{finding.check}, {finding.where}"
        output.say(f"{output.verdict('fail')} {where}: {finding.count:,} {finding.what}")
        for sample in finding.samples:
            output.say("     " + ", ".join(f"{name} {value}" for name, value in sample.items()))
    records = count_of(report.records, "record")
    if report.findings:
        found = count_of(len(report.findings), "finding")
        output.say(f"{records} in {report.seconds:.0f} s: {found}")
    else:
        output.say(f"{output.verdict('ok')} {records} in {report.seconds:.0f} s: nothing is wrong")
