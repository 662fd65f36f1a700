"""The short form of the simulator, and proof that it bites.

The long form is `python -m tests.sim --many 20000 --jobs 2`. A seed that fails is replayed, one line per
event, with `python -m tests.sim --seed SEED`.
"""

import logging
from contextlib import suppress
from dataclasses import replace

import pytest
from sim import mutants
from sim.__main__ import many
from sim.outcome import run_seed
from sim.short_form import check_same_story, check_seeds, known_seeds
from sim.swarm import draw
from sim.world import World

from dmq.broker.multiraft import cargo
from dmq.errors import StorageError
from dmq.storage.log import Log

KIND = "replicas"
SEEDS = 300


@pytest.mark.timeout(1800)
def test_no_promise_is_broken() -> None:
    check_seeds(KIND, SEEDS, chunk=10)


def test_many_seeds_fail_when_one_has_too_little_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "disable", lambda level: None)  # It would outlast this test.
    assert many(1, first=7, jobs=1, kind=KIND) == 0
    monkeypatch.setattr("sim.story.FAULTS_MIN", 10**6)
    assert many(1, first=7, jobs=1, kind=KIND) == 1
    assert "TOO FEW OPERATIONS OR FAULTS: 7" in capsys.readouterr().out


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", known_seeds())
def test_a_seed_that_once_failed(seed: int) -> None:
    assert run_seed(seed).failure is None


@pytest.mark.parametrize("seed", [2, 7, 1003])
def test_the_same_seed_gives_the_same_story(seed: int) -> None:
    check_same_story(KIND, seed)


def test_one_seed_in_fifty_sends_bytes() -> None:
    assert 100 < sum(draw(seed).encodes for seed in range(10_000)) < 300


def test_some_seeds_have_compacted_topics() -> None:
    assert 250 < sum(draw(seed).compaction is not None for seed in range(1000)) < 350
    assert draw(7).compaction is not None, "one of those that are told twice"


@pytest.mark.parametrize("seed", [3, 7, 126])
def test_frames_that_travel_as_bytes_make_no_difference(seed: int) -> None:
    worlds = [World(seed, replace(draw(seed), encodes=encodes)) for encodes in (False, True)]
    sent = []
    copy = worlds[1].network.copy
    assert copy is not None
    worlds[1].network.copy = lambda frame: sent.append(frame) or copy(frame)
    for world in worlds:
        world.run()
    assert len(sent) > 300
    assert worlds[0].clock.events == worlds[1].clock.events
    assert worlds[0].reached == worlds[1].reached


@pytest.mark.timeout(300)
def test_what_is_sent_out_of_memory_is_what_the_files_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh_piece, compared, missing = cargo.fresh_piece, list[int](), list[int]()

    def both(log: Log, start: int, stop: int, bytes_max: int) -> cargo.Piece | None:
        piece = fresh_piece(log, start, stop, bytes_max)
        if piece is None:
            missing.append(start)
        else:
            with suppress(StorageError, OSError):  # Bits may have been flipped there.
                found = cargo.read_piece(log, start, piece.stop, 1 << 20)
                assert (found.stop, found.data) == (piece.stop, bytes(piece.data))
                compared.append(start)
        return piece

    monkeypatch.setattr(cargo, "fresh_piece", both)
    for seed in range(5000, 5012):
        assert run_seed(seed).failure is None
    assert len(compared) > 1000
    assert len(missing) > 100, "files are read, too"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(mutants.MUTANTS))
def test_the_simulator_catches_a_broken_rule(name: str) -> None:
    mutant = mutants.MUTANTS[name]
    assert mutants.caught_after(mutant) is not None, f"not caught in {mutant.within} seeds"
