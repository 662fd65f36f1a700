"""How readers and writers get to the executors, and what one is told that lacks dmq.

Spark pickles them on the driver and unpickles them in every task. Where `dmq` can't be imported, none of
our code runs, and the job would end with a bare "No module named 'dmq'". So they are packed in bytes, and
what unpacks those goes along as code: a function by value, which can say what to do.
"""

import builtins
import types
from typing import Any

from pyspark import cloudpickle


def _arrive(packed: bytes) -> Any:
    """Unpack. Runs where there may be no dmq, so it uses nothing from outside of itself."""
    import pickle
    import platform
    import sys

    try:
        kind, state = pickle.loads(packed)  # noqa: S301 (what the driver has packed)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        where = f"the Python of a Spark executor ({sys.executable} on {platform.node()})"
        if name in ("dmq", "pyspark_dmq"):
            what = (
                "install it there (pip install 'dmq[spark]'), or send it with the job: make a file"
                " with `dmq pipeline package dmq.zip`, and give --py-files dmq.zip to spark-submit"
            )
        else:
            what = "dmq needs it there: install it on every host, --py-files is not enough"
        raise ModuleNotFoundError(f"{where} has no module {name!r}; {what}", name=name) from error
    arrived = kind.__new__(kind)
    arrived.__dict__.update(state)
    return arrived


_BY_VALUE = types.FunctionType(_arrive.__code__, {"__builtins__": builtins}, "arrive")
_BY_VALUE.__module__ = "__main__"  # What is defined there is sent as code.


class Shipped:
    """Something that Spark sends to executors. Its state is all in its `__dict__`."""

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        """What unpacks it, and it."""
        packed = cloudpickle.dumps((type(self), self.__dict__))  # type: ignore[no-untyped-call]
        return _BY_VALUE, (packed,)
