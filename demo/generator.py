"""A shop's events: orders, payments and clicks, as skewed, late and broken as in life.

Deterministic: the same seed makes the same records. A few customers order most (a power law), one
record in thirty is late by up to ten minutes, one in a hundred does not parse. Used by the demo and
by tests.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

TOPICS = ("orders", "payments", "clicks")
PRODUCTS = {
    "tea": 4.5, "coffee": 8.9, "cup": 12.0, "kettle": 39.0, "teapot": 28.5, "grinder": 89.0,
}  # fmt: skip
METHODS = ("card", "invoice", "transfer")
PAGES = ("/", "/tea", "/coffee", "/basket", "/checkout")


class Event(NamedTuple):
    """One record to be sent."""

    topic: str
    key: bytes
    value: bytes | None
    timestamp_ms: int


@dataclass
class Shop:
    """Makes events of `minutes` that end at `until_ms`."""

    orders: int
    until_ms: int
    minutes: int = 30
    customers: int = 2_000
    seed: int = 7
    late_share: float = 1 / 30
    broken_share: float = 1 / 100
    unpaid_share: float = 0.15
    clicks_per_order: int = 3
    broken: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    """How many records of each topic were made that do not parse."""
    sent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))

    def events(self) -> Iterator[Event]:
        """All of them, about in the order of time."""
        dice = random.Random(self.seed)
        span_ms = self.minutes * 60_000
        for number in range(self.orders):
            at_ms = self.until_ms - span_ms + number * span_ms // self.orders
            customer = f"c{self._skewed(dice):05d}"
            for _ in range(self.clicks_per_order):
                yield self._click(dice, customer, at_ms)
            order_id = f"o{number:08d}"
            amount, order = self._order(dice, order_id, customer, at_ms)
            yield order
            if dice.random() > self.unpaid_share:
                yield self._payment(dice, order_id, amount, at_ms + dice.randrange(60_000))

    def _skewed(self, dice: random.Random) -> int:
        """A customer's number: the first few come most."""
        return min(self.customers - 1, int(dice.paretovariate(0.6)) - 1)

    def _order(
        self, dice: random.Random, order_id: str, customer: str, at_ms: int
    ) -> tuple[float, Event]:
        product = dice.choice(tuple(PRODUCTS))
        quantity = 1 + int(dice.expovariate(0.9))
        amount = round(PRODUCTS[product] * quantity, 2)
        fields = {
            "order_id": order_id,
            "customer": customer,
            "product": product,
            "quantity": quantity,
            "amount": amount,
        }
        return amount, self._event(dice, "orders", customer, fields, at_ms)

    def _payment(self, dice: random.Random, order_id: str, amount: float, at_ms: int) -> Event:
        fields = {"order_id": order_id, "paid": amount, "method": dice.choice(METHODS)}
        return self._event(dice, "payments", order_id, fields, at_ms)

    def _click(self, dice: random.Random, customer: str, at_ms: int) -> Event:
        fields = {"customer": customer, "page": dice.choice(PAGES), "ms": dice.randrange(20, 900)}
        return self._event(dice, "clicks", customer, fields, at_ms)

    def _event(
        self, dice: random.Random, topic: str, key: str, fields: dict[str, object], at_ms: int
    ) -> Event:
        if dice.random() < self.late_share:
            at_ms -= dice.randrange(600_000)
        moment = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        value: bytes | None = json.dumps(fields | {"at": moment}).encode()
        self.sent[topic] += 1
        if dice.random() < self.broken_share:
            self.broken[topic] += 1
            value = _broken(dice, value)
        return Event(topic, key.encode(), value, at_ms)


def _broken(dice: random.Random, value: bytes | None) -> bytes | None:
    """A value as careless producers send it."""
    assert value is not None
    kinds = (
        value[: len(value) // 2],
        value.replace(b'"at": "', b'"at": "on '),
        b"\xff\xfe" + value,
        b'["not", "an", "object"]',
        None,
    )
    return dice.choice(kinds)
