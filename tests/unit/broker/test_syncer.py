"""Work beside the loop, at its end."""

import asyncio
import threading

import pytest

from dmq.broker.syncer import Workers


def test_what_is_asked_for_behind_the_end_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last work that was under way is reported after the end, and may want to go on."""

    async def scene() -> list[str]:
        workers, told = Workers(asyncio.get_running_loop(), 1), []
        began, may_end = threading.Event(), threading.Event()
        reported = asyncio.Event()

        def work() -> None:
            began.set()
            may_end.wait()

        def done(error: BaseException | None) -> None:
            assert error is None
            told.append("first")
            workers.submit(lambda: told.append("second"), lambda _: told.append("second is told"))
            reported.set()

        workers.submit(work, done)
        workers.submit(lambda: told.append("waiting"), lambda _: told.append("waiting is told"))
        began.wait()
        shut_down = workers._pool.shutdown

        def shut_down_under_way(*, wait: bool, cancel_futures: bool) -> None:
            shut_down(wait=False, cancel_futures=cancel_futures)
            may_end.set()
            shut_down(wait=wait)

        monkeypatch.setattr(workers._pool, "shutdown", shut_down_under_way)
        workers.close()
        await asyncio.wait_for(reported.wait(), 10)
        await asyncio.sleep(0)
        return told

    assert asyncio.run(scene()) == ["first"]
