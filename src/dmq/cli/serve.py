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

_CLUSTER = "Cluster"


@command(
    app,
    "serve",
    """
    dmq serve --config broker.yaml
    dmq serve --config broker.yaml --set node.id=2 --set logging.format=json
    DMQ_LOG_DIRS=/var/lib/dmq dmq serve

    Three brokers by hand, one after the other (each in its own terminal):
    dmq serve --bootstrap --data ./b1 --port 9092 --peer-port 9093
    dmq serve --join 127.0.0.1:9093 --data ./b2 --port 9102 --peer-port 9103
    dmq serve --join 127.0.0.1:9093 --data ./b3 --port 9112 --peer-port 9113

    The same as a fixed set that starts all at once, in any order (containers):
    P=1@127.0.0.1:9093,2@127.0.0.1:9103,3@127.0.0.1:9113
    dmq serve --peers $P --node-id 1 --data ./b1 --port 9092
    dmq serve --peers $P --node-id 2 --data ./b2 --port 9102
    dmq serve --peers $P --node-id 3 --data ./b3 --port 9112

    Then: dmq cluster status -b 127.0.0.1:9092
    """,
    cluster=False,
)
def serve(
    session: Session,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Settings: YAML, or Java .properties."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help="Where records live; sets log.dirs."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="The address of both doors; with --peers that of the Kafka door only.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", min=0, max=65535, help="Of the Kafka door; 9092."),
    ] = None,
    peer_port: Annotated[
        int | None,
        typer.Option(
            "--peer-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Of the door for other brokers, on --host; sets peer.listener. 9093 with "
            "--bootstrap and --join; with --peers it is in the list.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    node_id: Annotated[
        int | None,
        typer.Option(
            "--node-id",
            metavar="N",
            min=0,
            help="This broker's number; with --join the cluster gives one.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    rack: Annotated[
        str | None,
        typer.Option(
            "--rack",
            metavar="NAME",
            help="Where it stands: replicas are kept in different racks.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    bootstrap: Annotated[
        bool,
        typer.Option(
            "--bootstrap",
            help="Found a cluster, if the data directory is empty.",
            rich_help_panel=_CLUSTER,
        ),
    ] = False,
    join: Annotated[
        str | None,
        typer.Option(
            "--join",
            metavar="HOST:PORT,…",
            help="Join the cluster of these brokers (peer ports), if the directory is empty.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers",
            metavar="ID@HOST:PORT,…",
            help="One of a fixed set that starts together; the same list for all (peer ports).",
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    accept_rotten: Annotated[
        str | None,
        typer.Option(
            "--accept-rotten",
            metavar="ID",
            help="Once, after a start that was refused because the journal lost records: keep what is "
            "left and go on under a new directory id. ID is the present one; the refusal names it.",
        ),
    ] = None,
    accept_lost: Annotated[
        str | None,
        typer.Option(
            "--accept-lost",
            metavar="ID,…",
            help="Once, if the disks of most brokers that vote on the metadata are lost for ever: go on "
            "as the only one. The ids are the lost directories'; a start without them names them.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of `dmq config list`."),
    ] = None,
) -> Exit:
    """Run a broker as a service, until SIGTERM or Ctrl-C.

    A setting is taken from an option, else from its DMQ_ variable, else from the file, else it has
    its default. All problems are told at once. Every setting is explained by `dmq config list`. Exit
    code 70: the broker stopped itself because it could no longer keep its promises.

    A broker whose data directory is not empty knows its cluster, and the same command starts it again.
    Those that --join and --peers name are then asked which cluster they are of: if it is another, the
    broker does not start; if brokers of its own have moved, it finds them there.

    --accept-rotten changes nothing if the journal is sound, or if ID is not that of the data directory:
    left in the command, it does not accept the next damage. So does --accept-lost if somebody leads the
    metadata, or if the ids are not those of all other voters.
    """
    from dmq.cli import start

    options: Options = {
        "settings": settings or [],
        "quiet": session.output.quiet,
        "json": session.output.json,
        "no_color": not session.output.color,
    }
    texts = {"config": config, "data": data, "host": host, "rack": rack, "join": join}
    texts |= {"peers": peers, "accept_rotten": accept_rotten, "accept_lost": accept_lost}
    numbers = {"port": port, "peer_port": peer_port, "node_id": node_id}
    options |= {name: text for name, text in texts.items() if text is not None}
    options |= {name: str(number) for name, number in numbers.items() if number is not None}
    options |= {"bootstrap": True} if bootstrap else {}
    return Exit(start.serve(options))
