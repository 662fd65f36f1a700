"""Places in a log as people write them."""

from datetime import datetime

import pytest

from dmq.cli.exits import CommandError, Exit
from dmq.cli.moments import Kind, Place, iso, place, timestamp_ms

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Place(Kind.BEGINNING)),
        ("Earliest", Place(Kind.BEGINNING)),
        ("end", Place(Kind.END)),
        ("0", Place(Kind.OFFSET, 0)),
        ("42", Place(Kind.OFFSET, 42)),
        ("-10", Place(Kind.BEFORE_END, 10)),
        ("@1700000000000", Place(Kind.TIMESTAMP, 1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Place(Kind.TIMESTAMP, 1_700_000_000_000)),
        ("2023-11-14T23:13:20.250+01:00", Place(Kind.TIMESTAMP, 1_700_000_000_250)),
        ("5m", Place(Kind.TIMESTAMP, NOW_MS - 300_000)),
        ("1.5h", Place(Kind.TIMESTAMP, NOW_MS - 5_400_000)),
        ("250ms", Place(Kind.TIMESTAMP, NOW_MS - 250)),
    ],
)
def test_places(text: str, expected: Place) -> None:
    assert place(text, NOW_MS) == expected


def test_a_bare_number_is_an_offset_however_large() -> None:
    assert place("1700000000000", NOW_MS).kind is Kind.OFFSET


def test_a_date_without_a_zone_is_local() -> None:
    local = datetime(2026, 1, 31, 12, 0).astimezone()
    assert timestamp_ms("2026-01-31T12:00", NOW_MS, "--from") == local.timestamp() * 1000


@pytest.mark.parametrize("text", ["", "soon", "5x", "@", "@soon", "--1", "2026-13-01", "1_000"])
def test_nonsense_is_a_usage_error_that_names_the_option(text: str) -> None:
    with pytest.raises(CommandError, match="--to") as error:
        place(text, NOW_MS, "--to")
    assert error.value.code is Exit.USAGE


@pytest.mark.parametrize("text", ["end", "42", "-3"])
def test_an_option_for_moments_does_not_offer_other_places(text: str) -> None:
    with pytest.raises(CommandError, match="no moment") as error:
        timestamp_ms(text, NOW_MS, "--to-datetime")
    assert "ISO date" in str(error.value.hint)
    assert "OFFSET" not in str(error.value.hint)


def test_iso_shows_milliseconds_in_utc_and_survives_any_number() -> None:
    assert iso(1_700_000_000_250) == "2023-11-14T22:13:20.250Z"
    assert iso(2**62) == f"@{2**62}"
