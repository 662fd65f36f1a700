"""Starts a broker in this process, for `dmq up` and `dmq serve`, and speaks for it.

Owns the settings' way into the broker, the temporary data directory of `up` and the sentences for a
start that failed. The broker itself is `dmq.doors.serve.run_broker`, several of them `up_many`; what
they say when they are ready is in `banner`. Imports little at the top and the rest when it is needed:
all of it counts towards the time to ready.
"""

import os
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dmq.cli.exits import CommandError, Exit, not_found, usage
from dmq.cli.fast import Options
from dmq.errors import ConfigError, DmqError, StorageError

if TYPE_CHECKING:
    from uuid import UUID

    from dmq.cli.up_many import Brokers
    from dmq.config.broker import BrokerConfig
    from dmq.doors.serve import Ready

DURABILITIES = ("sync", "async")
DEFAULT_HOST = "127.0.0.1"
PEER_PORT = 9093
BROKERS_MAX = 15
"""Of `dmq up`: more than a terminal's worth of brokers is no playground."""
FOLDER_PREFIX = "broker-"
"""Of the folders in which `dmq up --brokers` keeps each broker's data, with its number behind it."""
NOT_SETTINGS = (
    "DMQ_BOOTSTRAP_SERVERS",
    "DMQ_CLIENT_CONFIG",
    "DMQ_PROFILE",
    "DMQ_TEST_BOOTSTRAP",
)
"""Variables of ours that set nothing of a broker."""

_UP_JOURNAL = {"journal.max.bytes": 64 << 20, "journal.file.bytes": 16 << 20}
"""A person's broker reserves less of the disk than a service does."""
_OWN_FILES = (
    *("clean-points", "journal", "lock", "logs", "meta", "meta.new", "producers", "quarantine"),
    *("lost+found", "sync-failed"),
)
"""In a folder that a broker began to use, or a disk's own."""
_DATA_NAMES = ("log.dirs", "log.dir", "data.dir")
_TAKEN = (
    " Stop that broker first (`dmq doctor --data DIR` tells whether it runs), or give --data another"
    " folder: each broker has its own."
)
_UP_VOICE = {"logging.level": "warning"}
"""The banner says the rest."""


def up(options: Options) -> int:
    """Run one broker for a person: quick, local, temporary if nothing else is said."""
    return _to_exit_code(options, lambda: _up(options))


def serve(options: Options) -> int:
    """Run one broker as a service."""
    return _to_exit_code(options, lambda: _serve(options))


def _up(options: Options) -> int:
    _refuse_optimized()
    brokers = int(str(options.get("brokers", 1)))
    if not 1 <= brokers <= BROKERS_MAX:
        raise usage(f"--brokers {brokers} is not a number from 1 to {BROKERS_MAX}")
    flags: dict[str, Any] = {"port": options.get("port"), "durability": options.get("durability")}
    if flags["durability"] not in (None, *DURABILITIES):
        raise usage(f"--durability {flags['durability']!r} is unknown", "Use sync or async.")
    flags |= _settings(options)
    for defaults in (_UP_JOURNAL, _UP_VOICE):  # The journal's two only fit together.
        if not any(name in flags or _variable(name) in os.environ for name in defaults):
            flags |= defaults
    if "data" in options:
        flags["log.dirs"] = _named(options["data"], "--data")
    run = _run if brokers == 1 else partial(_run_many, brokers, flags)
    if any(name in flags or _variable(name) in os.environ for name in _DATA_NAMES):
        config = _config(flags)
        _refuse_other_layout(config.data_dir, brokers)
        return run(config, options, is_temporary=False)
    import shutil

    from dmq.cli.leftovers import new_directory

    flags["log.dirs"] = new_directory()
    try:
        return run(_config(flags), options, is_temporary=True)
    finally:
        shutil.rmtree(flags["log.dirs"], ignore_errors=True)


def _refuse_other_layout(data_dir: str, brokers: int) -> None:
    """One broker lives in the folder itself, several in folders below: who starts the other form of `up`
    would find an empty cluster where records were."""
    several: list[int] = []
    with suppress(OSError):  # There is none yet; what else is wrong is told by the broker.
        for name in os.listdir(data_dir):  # noqa: PTH208  pathlib is not imported yet.
            node = name.removeprefix(FOLDER_PREFIX)
            is_one = name != node and node.isdecimal()
            if is_one and os.path.exists(f"{data_dir}/{name}/meta"):  # noqa: PTH110
                several.append(int(node))
    is_single = os.path.exists(f"{data_dir}/meta")  # noqa: PTH110
    if brokers == 1 and several and not is_single:
        several.sort()
        *some, last = map(str, several)
        names = f"{', '.join(some)} and {last}" if some else last
        raise CommandError(
            f"The folder {data_dir!r} has the brokers of a cluster, {names}",
            hint=f"Go on with `dmq up --brokers {max(2, several[-1])} --data {data_dir}`, or give"
            " --data another folder.",
        )
    if brokers > 1 and several and max(several) > brokers:
        raise CommandError(
            f"The folder {data_dir!r} has {max(several)} brokers: "
            f"--brokers {brokers} would leave some out",
            hint=f"Go on with --brokers {max(several)}, or take the others out first (`dmq cluster"
            f" decommission`) and move their folders, {FOLDER_PREFIX}{max(several)} for one, away.",
        )
    if brokers > 1 and is_single and not several:
        raise CommandError(
            f"The data directory {data_dir!r} is that of a single broker",
            hint="Leave out --brokers to go on with it, or give --data another folder.",
        )


def _run_many(
    count: int,
    flags: dict[str, Any],
    config: "BrokerConfig",
    options: Options,
    *,
    is_temporary: bool,
) -> int:
    """Brokers in processes of their own; `config` is that of the first, and has been checked."""
    from dmq.cli.up_many import Brokers

    def on_ready(brokers: "Brokers") -> None:
        from dmq.cli.banner import announce_many

        announce_many(brokers, config, options, is_temporary)
        if is_temporary:
            _remove_leftovers(config.data_dir)

    shared = {name: value for name, value in flags.items() if name not in _DATA_NAMES}
    return Brokers(count, config.port, config.data_dir).run(shared, on_ready)


def _remove_leftovers(keep: str) -> None:
    """Beside the brokers: folders of those that were killed."""
    import threading

    from dmq.cli.leftovers import remove

    threading.Thread(target=remove, args=(keep,), daemon=True).start()


def _serve(options: Options) -> int:
    _refuse_optimized()
    path = _named(options["config"], "--config") if "config" in options else None
    if path and not os.path.exists(str(path)):  # noqa: PTH110  pathlib is not imported yet.
        raise not_found(f"There is no configuration file {path!r}", "Give --config one.")
    config = _serve_config(_serve_flags(options), path)
    if config.cluster_bootstrap:
        _refuse_foreign_files(config.data_dir)
    return _run(config, options)


def _refuse_foreign_files(data_dir: str) -> None:
    """A cluster is founded in an empty folder: with others' files in it, the name is likely a mistake."""
    with suppress(OSError):  # There is none yet; what else is wrong is told by the broker.
        names = os.listdir(data_dir)  # noqa: PTH208  pathlib is not imported yet.
        foreign = sorted(name for name in names if name[0] != "." and name not in _OWN_FILES)
        if foreign and not _has_owner(data_dir):
            more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
            raise CommandError(
                f"The data directory {data_dir!r} is no broker's, and not empty: it has "
                f"{foreign[0]!r}{more}",
                hint="Give --data an empty folder, or one that does not exist yet.",
            )


def _has_owner(data_dir: str) -> bool:
    """Whether it is some broker's. One that only tried to join a cluster has no number yet."""
    with suppress(OSError), open(f"{data_dir}/meta", "rb") as file:  # noqa: PTH123
        return b"\nnode.id=" in file.read()
    return False


def _accepted(options: Options) -> "UUID | None":
    """The directory whose rotten journal somebody knows of, and wants to go on with."""
    if "accept_rotten" not in options:
        return None
    from uuid import UUID

    text = _named(options["accept_rotten"], "--accept-rotten")
    try:
        return UUID(text)
    except ValueError:
        raise usage(
            f"--accept-rotten {text!r} is no directory id",
            "A start without it names the id, if the journal is rotten.",
        ) from None


def _lost(options: Options) -> "frozenset[UUID]":
    """The directories of voters that somebody knows to be lost for ever."""
    if "accept_lost" not in options:
        return frozenset()
    from uuid import UUID

    text = _named(options["accept_lost"], "--accept-lost")
    try:
        return frozenset(UUID(each.strip()) for each in text.split(","))
    except ValueError:
        raise usage(
            f"--accept-lost {text!r} does not name directory ids",
            "A start without it names those of the other voters, if nobody leads the metadata.",
        ) from None


_SERVE_SETTINGS = {
    "data": "log.dirs",
    "host": "host",
    "port": "port",
    "peer_port": "peer.listener",
    "node_id": "node.id",
    "rack": "broker.rack",
    "join": "cluster.join",
    "peers": "cluster.peers",
}
"""Options of `serve` and the settings that they stand for."""


def _serve_flags(options: Options) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for option, name in _SERVE_SETTINGS.items():
        if option in options:
            flags[name] = _named(options[option], "--" + option.replace("_", "-"))
    if "peer_port" in options:
        flags["peer.listener"] = _peer_listener(flags.get("host", ""), options["peer_port"])
    if options.get("bootstrap"):
        flags["cluster.bootstrap"] = "true"
    ways = [f"--{way}" for way in ("bootstrap", "join", "peers") if way in options]
    if len(ways) > 1:
        raise usage(f"{' and '.join(ways)} contradict each other", "A broker has one way in.")
    return flags | _settings(options)


def _serve_config(flags: dict[str, Any], path: str | None) -> "BrokerConfig":
    """A broker that is to be part of a cluster has a door for the others, also if nobody says so."""
    has_number = any(_said(flags, name) for name in ("node.id", "broker.id"))
    if path is None and _said(flags, "cluster.peers") and not has_number:
        raise usage("--peers needs --node-id", "Say which broker of the list this one is.")
    usual = _usual_peer_listener(flags)
    if not usual or "peer.listener" in flags or _variable("peer.listener") in os.environ:
        return _config(flags, path)
    if path is not None:  # The file may say it; what is wrong with it is told below.
        with suppress(ConfigError):
            config = _config(flags, path)
            if config.peer_listener:
                return config
    return _config(flags | {"peer.listener": usual}, path)


def _usual_peer_listener(flags: dict[str, Any]) -> str:
    """At the broker's own address of --peers, else at the usual port."""
    if peers := _said(flags, "cluster.peers"):
        own = f"{_said(flags, 'node.id')}@"
        each_one = [each.strip() for each in peers.split(",")]
        return next((each.removeprefix(own) for each in each_one if each.startswith(own)), "")
    if "cluster.bootstrap" in flags or _said(flags, "cluster.join"):
        return _peer_listener(_said(flags, "host"), PEER_PORT)
    return ""


def _peer_listener(host: str, port: object) -> str:
    from dmq.config.listeners import host_port

    return host_port(host or DEFAULT_HOST, port)


def _said(flags: dict[str, Any], name: str) -> str:
    """By an option, else by a variable."""
    return str(flags.get(name, os.environ.get(_variable(name), "")))


def _named(value: object, option: str) -> str:
    """An empty name is an unset variable of somebody's shell, not the wish for a default."""
    if not value:
        raise usage(f"{option} is empty", f"Leave out {option}, or give it a name.")
    return str(value)


def _variable(name: str) -> str:
    return "DMQ_" + name.upper().replace(".", "_")


def _refuse_optimized() -> None:
    if not __debug__:
        raise CommandError(
            "dmq does not run under python -O: its assertions guard the data",
            hint="Leave out -O and unset PYTHONOPTIMIZE.",
        )


def _settings(options: Options) -> dict[str, str]:
    settings: dict[str, str] = {}
    many = options.get("settings") or []
    assert isinstance(many, list)
    for item in many:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise usage(f"--set {item!r} has no name and value", "Write --set name=value.")
        settings[name.strip()] = value.strip()
    return settings


def _config(flags: dict[str, Any], path: str | None = None) -> "BrokerConfig":
    """Flags over environment over file."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("DMQ_") and name not in NOT_SETTINGS
    }
    if path is None and not environ and not set(flags) & {"log.dir", "data.dir", "broker.id"}:
        # The short way spares the import of YAML; names with an alias are for the long way.
        from dmq.config.broker import BrokerConfig

        given = {name: value for name, value in flags.items() if value is not None}
        if all(name in _known() for name in given):
            # The long way tells problems with the place where they come from.
            with suppress(ConfigError):
                return BrokerConfig.of(given)
    from pathlib import Path

    from dmq.config.load import load_broker_config

    return load_broker_config(
        flags=flags, environ=environ, path=None if path is None else Path(path)
    )


def _known() -> Any:
    from dmq.config.broker import BROKER

    return BROKER


def _run(config: "BrokerConfig", options: Options, *, is_temporary: bool = False) -> int:
    from dmq.cli.broker_log import log_to_stderr
    from dmq.doors.serve import Accepted, run_broker

    accepted = Accepted(_accepted(options), _lost(options))
    log_to_stderr(config.logging_level, config.logging_format, is_quiet=bool(options.get("quiet")))
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)

    def on_ready(ready: "Ready") -> None:
        from dmq.cli.banner import announce

        announce(ready, config, options, is_temporary)
        if is_temporary:
            _remove_leftovers(config.data_dir)

    try:
        return run_broker(config, on_ready, accepted)
    except OSError as error:
        raise _explained(error, config) from error


def _explained(error: OSError, config: "BrokerConfig") -> CommandError:
    import errno

    doors = [(each.host, each.port) for each in config.kafka_listeners]
    is_peer = repr(config.peer_address) in str(error)  # The socket module says which it was.
    if is_peer and config.peer_address is not None:
        doors = [config.peer_address]
    where = ", ".join(f"{host}:{port}" for host, port in doors)
    if error.errno == errno.EADDRINUSE:
        which = "`--peer-port`, `peer.listener`" if is_peer else "`--port`, the setting `port`"
        return CommandError(
            f"The address {where} is taken",
            hint=f"Choose another port ({which}), or stop what holds it:"
            " `dmq doctor` tells whether it is a broker.",
        )
    if error.errno in (errno.EADDRNOTAVAIL, errno.EACCES) and error.filename is None:
        return CommandError(f"Nothing can listen at {where}: {error.strerror}")
    return CommandError(
        f"The broker can't start with the data directory {config.data_dir!r}: {error}",
        hint="Try `dmq doctor --data DIR`.",
    )


def _to_exit_code(options: Options, call: Any) -> int:
    """Run to an exit code; troubles become sentences."""
    try:
        return int(call())
    except CommandError as error:
        _complain([error.message + (f". {error.hint}" if error.hint else "")])
        return error.code
    except ConfigError as error:
        _complain(error.problems)
        return Exit.USAGE
    except StorageError as error:
        is_taken = isinstance(error.__cause__, BlockingIOError)
        _complain([f"The data directory can't be used: {error}.{_TAKEN if is_taken else ''}"])
        return Exit.FAILURE
    except DmqError as error:  # A cluster that does not want it, say.
        _complain([f"The broker can't start: {error}"])
        return Exit.FAILURE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _complain(sentences: list[str]) -> None:
    for sentence in sentences:
        print(f"error: {sentence}" + ("" if sentence[-1] in ".?!" else "."), file=sys.stderr)
