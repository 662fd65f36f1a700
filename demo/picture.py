"""The demo's picture: revenue over time, what sells, and how few customers buy most."""

from pathlib import Path

import matplotlib
import pyarrow as pa

matplotlib.use("Agg")
from matplotlib import dates
from matplotlib import pyplot as plt

ORDERED, PAID, REST = "#b8c4d6", "#2f6f9f", "#c9653b"


def draw(path: Path, tables: dict[str, pa.Table], title: str) -> None:
    """Write the picture as a PNG."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.2), width_ratios=(2, 1, 1))
    revenue = tables["revenue"].sort_by("minute").to_pydict()
    left.bar(revenue["minute"], revenue["ordered"], width=0.0006, color=ORDERED, label="ordered")
    left.bar(revenue["minute"], revenue["paid"], width=0.0006, color=PAID, label="paid")
    left.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))
    left.set_title("revenue per minute")
    left.legend(frameon=False)
    products = tables["products"].sort_by("revenue").to_pydict()
    middle.barh(products["product"], products["revenue"], color=PAID)
    middle.set_title("what sells")
    counts = sorted(tables["customers"]["orders"].to_pylist(), reverse=True)
    right.loglog(range(1, len(counts) + 1), counts, color=REST)
    right.set_title("orders per customer, by rank")
    right.set_xlabel("customer")
    for axis in (left, middle, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
