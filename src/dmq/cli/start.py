"""Starts a broker in this process, for `dmq up` and `dmq serve`, and speaks for it.

Owns the settings' way into the broker, the ready banner, the temporary data directory of `up` and
the sentences for a start that failed. The broker itself is `dmq.doors.serve.run_broker`. Imports
little at the top and the rest when it is needed: all of it counts towards the time to ready.
"""

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dmq.cli.exits import CommandError, Exit, not_found, usage
from dmq.cli.fast import Options
from dmq.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from dmq.config.broker import BrokerConfig
    from dmq.doors.serve import Ready

DURABILITIES = ("sync", "async")
NOT_SETTINGS = (
    "DMQ_BOOTSTRAP_SERVERS",
    "DMQ_CLIENT_CONFIG",
    "DMQ_PROFILE",
    "DMQ_TEST_BOOTSTRAP",
)
"""Variables of ours that set nothing of a broker."""

_UP_JOURNAL = {"journal.max.bytes": 64 << 20, "journal.file.bytes": 16 << 20}
"""A person's broker reserves less of the disk than a service does."""
_DATA_NAMES = ("log.dirs", "log.dir", "data.dir")
_UP_VOICE = {"logging.level": "warning"}
"""The banner says the rest."""

_DURABILITY_MEANS = {
    "sync": "an acknowledged record is on disk",
    "async": "an acknowledged record may be lost when the machine fails",
}


def up(options: Options) -> int:
    """Run one broker for a person: quick, local, temporary if nothing else is said."""
    return _to_exit_code(options, lambda: _up(options))


def serve(options: Options) -> int:
    """Run one broker as a service."""
    return _to_exit_code(options, lambda: _serve(options))


def _up(options: Options) -> int:
    _refuse_optimized()
    brokers = int(str(options.get("brokers", 1)))
    if brokers != 1:
        raise CommandError(
            f"{brokers} brokers can't form a cluster yet: this version runs one broker",
            hint="Leave out --brokers.",
        )
    flags: dict[str, Any] = {"port": options.get("port"), "durability": options.get("durability")}
    if flags["durability"] not in (None, *DURABILITIES):
        raise usage(f"--durability {flags['durability']!r} is unknown", "Use sync or async.")
    flags |= _settings(options)
    for defaults in (_UP_JOURNAL, _UP_VOICE):  # The journal's two only fit together.
        if not any(name in flags or _variable(name) in os.environ for name in defaults):
            flags |= defaults
    if "data" in options:
        flags["log.dirs"] = _named(options["data"], "--data")
    if any(name in flags or _variable(name) in os.environ for name in _DATA_NAMES):
        return _run(_config(flags), options, is_temporary=False)
    import shutil
    import tempfile

    flags["log.dirs"] = tempfile.mkdtemp(prefix="dmq-up-")
    try:
        return _run(_config(flags), options, is_temporary=True)
    finally:
        shutil.rmtree(flags["log.dirs"], ignore_errors=True)


def _serve(options: Options) -> int:
    _refuse_optimized()
    path = _named(options["config"], "--config") if "config" in options else None
    if path and not os.path.exists(str(path)):  # noqa: PTH110  pathlib is not imported yet.
        raise not_found(f"There is no configuration file {path!r}", "Give --config one.")
    return _run(_config(_settings(options), str(path) if path else None), options)


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
    from dmq.doors.serve import run_broker

    log_to_stderr(config.logging_level, config.logging_format, is_quiet=bool(options.get("quiet")))
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    try:
        return run_broker(config, lambda ready: _announce(ready, config, options, is_temporary))
    except OSError as error:
        raise _explained(error, config) from error


def _explained(error: OSError, config: "BrokerConfig") -> CommandError:
    import errno

    where = ", ".join(f"{each.host}:{each.port}" for each in config.kafka_listeners)
    if error.errno == errno.EADDRINUSE:
        return CommandError(
            f"The address {where} is taken",
            hint="Choose another port (`dmq up --port`, the setting `port`), or stop what holds it:"
            " `dmq doctor` tells whether it is a broker.",
        )
    if error.errno in (errno.EADDRNOTAVAIL, errno.EACCES) and error.filename is None:
        return CommandError(f"Nothing can listen at {where}: {error.strerror}")
    return CommandError(
        f"The broker can't start with the data directory {config.data_dir!r}: {error}",
        hint="Try `dmq doctor --data DIR`.",
    )


def _announce(ready: "Ready", config: "BrokerConfig", options: Options, is_temporary: bool) -> None:
    total_s = max(_process_age_s() or ready.seconds, ready.seconds)
    if options.get("json"):
        import json

        facts = {
            "event": "ready",
            "bootstrap_servers": ready.bootstrap_servers,
            "node_id": ready.node_id,
            "cluster_id": ready.cluster_id,
            "data_dir": os.path.abspath(ready.data_dir),  # noqa: PTH100
            "temporary": is_temporary,
            "durability": config.durability,
            "seconds": round(total_s, 3),
        }
        print(json.dumps(facts), flush=True)
    elif not options.get("quiet"):
        print(banner(ready, config.durability, total_s, is_temporary, _bold(options)), flush=True)


def banner(
    ready: "Ready", durability: str, total_s: float, is_temporary: bool, bold: tuple[str, str]
) -> str:
    """What a person needs to know of a broker that is ready."""
    from dmq import __version__

    start, end = bold
    kept = " (temporary: removed when the broker stops)" if is_temporary else ""
    lines = [
        f"{start}dmq {__version__} is ready{end} in {total_s:.2f} s"
        f" ({ready.seconds:.2f} s of it the broker, the rest Python)",
        f"  Kafka       {start}{ready.bootstrap_servers}{end}",
        f"  cluster     {ready.cluster_id}, broker {ready.node_id}",
        f"  data        {ready.data_dir}{kept}",
        f"  durability  {durability}: {_DURABILITY_MEANS[durability]}",
        "  stop        Ctrl-C",
    ]
    return "\n".join(lines)


def _bold(options: Options) -> tuple[str, str]:
    plain = options.get("no_color") or "NO_COLOR" in os.environ or not sys.stdout.isatty()
    return ("", "") if plain else ("\x1b[1m", "\x1b[0m")


def _process_age_s() -> float | None:
    """Since the system started this process, the interpreter's own start counted in; Linux only."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:  # noqa: PTH123
            # The name (field 2) may contain anything but ends at the last bracket.
            ticks = int(stat.read().rpartition(")")[2].split()[19])
            return float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


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
        _complain([f"The data directory can't be used: {error}."])
        return Exit.FAILURE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _complain(sentences: list[str]) -> None:
    for sentence in sentences:
        print(f"error: {sentence}" + ("" if sentence[-1] in ".?!" else "."), file=sys.stderr)
