"""The short road to a broker: `up` and `serve` in their plain form, without waiting for typer.

Owns the tables of their options. Parses only what it is sure of (`--name value`, `--name=value`,
known flags); anything else, a slip or `--help`, is left to typer, which explains itself better.
Imports as little as it can: every millisecond here is one of the time to ready.
"""

Options = dict[str, "str | bool | list[str]"]

UP = {
    "--brokers": "brokers",
    "--data": "data",
    "--port": "port",
    "--durability": "durability",
    "--set": "settings",
    "--quiet": "quiet",
    "-q": "quiet",
    "--json": "json",
    "--no-color": "no_color",
}
SERVE = {
    "--config": "config",
    "--data": "data",
    "--host": "host",
    "--port": "port",
    "--peer-port": "peer_port",
    "--node-id": "node_id",
    "--rack": "rack",
    "--bootstrap": "bootstrap",
    "--join": "join",
    "--peers": "peers",
    "--accept-rotten": "accept_rotten",
    "--accept-lost": "accept_lost",
    "--set": "settings",
    "--quiet": "quiet",
    "-q": "quiet",
    "--json": "json",
    "--no-color": "no_color",
}
_FLAGS = ("quiet", "json", "no_color", "bootstrap")
_REPEATABLE = ("settings",)
_NUMBERS = ("brokers", "port", "peer_port", "node_id")


def start(args: list[str]) -> int | None:
    """Run `up` or `serve` to its exit code, or None if that is for typer to do."""
    if not args or args[0] not in ("up", "serve"):
        return None
    options = parse(args[1:], UP if args[0] == "up" else SERVE)
    if options is None:
        return None
    if args[0] == "up":
        from dmq.cli.start import up

        return up(options)
    from dmq.cli.start import serve

    return serve(options)


def parse(args: list[str], names: dict[str, str]) -> Options | None:
    """Options by parameter name; None for anything that is not plainly one of `names`."""
    options: Options = {}
    rest = iter(args)
    for arg in rest:
        name, equals, value = arg.partition("=")
        parameter = names.get(name)
        if parameter is None:
            return None
        if parameter in _FLAGS:
            if equals:
                return None
            options[parameter] = True
            continue
        text = value if equals else next(rest, None)
        if text is None or (not equals and text.startswith("-")):
            return None
        if parameter in _NUMBERS and not text.isdecimal():
            return None
        _put(options, parameter, text)
    return options


def _put(options: Options, parameter: str, text: str) -> None:
    if parameter in _REPEATABLE:
        many = options.setdefault(parameter, [])
        assert isinstance(many, list)
        many.append(text)
    else:
        options[parameter] = text
