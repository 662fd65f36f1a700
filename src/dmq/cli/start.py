"""Starts a broker in this process, for `dmq up` and `dmq serve`."""

from dmq.cli.fast import Options


def up(options: Options) -> int:
    raise NotImplementedError


def serve(options: Options) -> int:
    raise NotImplementedError
