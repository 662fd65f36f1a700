"""Rules broken on purpose, one at a time."""

MUTANTS: dict[str, object] = {}


def caught_after(name: str, count: int) -> int | None:
    return None
