"""Deadlines by name, against a plain dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from dmq.machines.groups.timers import Timer, TimerKind, Timers

NAMES = [Timer(TimerKind.SESSION, "group", str(number)) for number in range(5)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(NAMES), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("pass"), st.sampled_from(NAMES), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(STEPS)
def test_timers_fire_once_at_the_moment_they_were_last_set_to(
    steps: list[tuple[str, Timer, int]],
) -> None:
    timers, expected, now = Timers(), dict[Timer, int](), 0
    for what, timer, number in steps:
        if what == "set":
            timers.set(timer, now + number)
            expected[timer] = now + number
        elif what == "cancel":
            timers.cancel(timer)
            expected.pop(timer, None)
        else:
            now += number
            fired = []
            while (due := timers.pop_due(now)) is not None:
                fired.append(due)
            assert sorted(fired) == sorted(t for t, at in expected.items() if at <= now)
            assert fired == sorted(fired, key=lambda t: expected[t])
            expected = {t: at for t, at in expected.items() if at > now}
        assert timers.next_at() == min(expected.values(), default=None)
        assert len(timers) == len(expected)
        assert all(name in timers for name in expected)
