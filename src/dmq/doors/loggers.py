"""The broker's loggers as Kafka's BROKER_LOGGER resource: their levels, read and changed.

A level that is set here lasts until the process ends; `logging.level` is the lasting way. Knows the
root logger and those of dmq, by Kafka's names for levels. Called by DescribeConfigs and
IncrementalAlterConfigs on the broker that the resource names.
"""

import logging

from dmq.errors import ErrorCode, KafkaError

ROOT = "root"
OURS = "dmq"
SET, DELETE = 0, 1
OPERATIONS = ("SET", "DELETE", "APPEND", "SUBTRACT")
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG,
    "WARN": logging.WARNING,
}


def levels() -> dict[str, str]:
    """Every logger and the level that counts for it."""
    return {name: _name(logger.getEffectiveLevel()) for name, logger in _loggers().items()}


def alter(changes: list[tuple[str, int, str | None]], *, validate_only: bool) -> None:
    """Set levels, or let loggers follow the ones above them again. Raises KafkaError."""
    for name, operation, value in changes:
        _check(name, operation, value)
    if validate_only:
        return
    for name, operation, value in changes:
        level = logging.NOTSET if operation == DELETE else LEVELS[value or ""]
        logging.getLogger(None if name == ROOT else name).setLevel(level)


def _check(name: str, operation: int, value: str | None) -> None:
    if operation not in (SET, DELETE):
        known = 0 <= operation < len(OPERATIONS)
        shown = OPERATIONS[operation] if known else f"{operation}"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{shown} makes no sense for a logger's level",
        )
    if name not in _loggers():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"There is no logger {name}")
    if operation == DELETE and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The root logger must have a level")
    if operation == SET and value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{value} is no level of logger {name}; levels are {', '.join(LEVELS)}",
        )


def _loggers() -> dict[str, logging.Logger]:
    made = logging.Logger.manager.loggerDict
    names = [OURS, *(name for name in made if name.startswith(f"{OURS}."))]
    found = {name: logging.getLogger(name) for name in sorted(set(names))}
    return {ROOT: logging.getLogger(), **found}


def _name(level: int) -> str:
    names = {number: name for name, number in LEVELS.items() if name != "TRACE"}
    below = [number for number in names if number <= level]
    return names[max(below)] if below else "TRACE"
