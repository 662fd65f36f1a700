"""`python -m tests.sim.fast ARGS`: what `python -m tests.sim ARGS` does, with the hot modules compiled.

Copies the sources into a folder under `.cache`, compiles there by mypyc what `COMPILED` names, and runs
the simulator from that copy: nothing else ever imports it. A copy is made anew when a source has changed.
`--check` tells the stories of a few seeds both ways: they must be the same to the letter. mypyc trusts
types and binds early, so mutants, which replace methods, are for the interpreter.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from fnmatch import fnmatch
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILDS = ROOT / ".cache" / "fast-sim"
KEPT = 3
"""Builds; a run that is under way may still read an older one."""
SOURCES = {"dmq": "src/dmq", "sim": "tests/sim", "fakes": "tests/fakes", "unit": "tests/unit"}
"""Folders of the copy, and what they are copies of."""
COMPILED = (
    "dmq/broker/compaction.py",
    "dmq/broker/multiraft/*.py",
    "dmq/broker/survivors.py",
    "dmq/broker/timers.py",
    "dmq/raft/*.py",
    "dmq/records.py",
    "dmq/storage/*.py",
    "dmq/types.py",
    "fakes/disk.py",
    "sim/batches.py",
    "sim/broker.py",
    "sim/checkers.py",
    "sim/clock.py",
    "sim/compaction.py",
    "sim/disk.py",
    "sim/host.py",
    "sim/keyed.py",
    "sim/ledger.py",
    "sim/metadata.py",
    "sim/network.py",
    "sim/observer.py",
    "sim/process.py",
    "sim/workload.py",
)
_ATTR = "from mypy_extensions import mypyc_attr\n\n\n@mypyc_attr({})\n{}"
_TUPLE = "from typing import NamedTuple\n"
_HOST, _CLIENT, _CHECKERS = "class SimHost(ABC):\n", "class Client:\n", "class Checkers:\n"
_NOTED = "def _flush_noted(log: Log, note: Note)"
PATCHES = (
    # A compiled class must not narrow an attribute of the one that it inherits from.
    ("dmq/storage/log.py", "    _host: Host\n", ""),
    ("dmq/storage/layout.py", "self._host = host\n", "self._host: Any = host\n"),
    # The type of a named tuple's field is looked for among the names of its module.
    ("dmq/broker/multiraft/cargo.py", _TUPLE, "from builtins import memoryview\n" + _TUPLE),
    ("dmq/storage/compaction_run.py", _TUPLE, "from builtins import memoryview\n" + _TUPLE),
    # The other kinds of worlds stay interpreted, and some of their classes inherit from these.
    ("sim/host.py", _HOST, _ATTR.format("allow_interpreted_subclasses=True", _HOST)),
    ("sim/workload.py", _CLIENT, _ATTR.format("allow_interpreted_subclasses=True", _CLIENT)),
    # What `probes.py` wraps must be called by its name.
    ("dmq/storage/store.py", _NOTED, "from typing import Any\n\n\n" + _NOTED.replace("Log", "Any")),
    # Its attributes are made at run time.
    ("sim/checkers.py", _CHECKERS, _ATTR.format("native_class=False", _CHECKERS)),
)
"""What mypyc can't do, changed in the copy: (file, text that it has once, what stands there instead)."""
_CONFIG = """\
[mypy]
explicit_package_bases = true
follow_imports = silent
ignore_missing_imports = true
[mypy-sim.observer,sim.workload]
disable_error_code = attr-defined
"""
_SETUP = """\
import sys
from mypyc.build import mypycify
from setuptools import setup
arguments = ["--config-file", "mypy.ini", *sys.argv[1:]]
modules = mypycify(arguments, opt_level="3", debug_level="0", multi_file=True)
setup(name="fast", packages=[], ext_modules=modules, script_args=["--quiet", "build_ext", "--inplace"])
"""
SEEDS = (3, 54, 95, 138, 685, 1599, 1993, 9739)


def sources() -> Iterator[tuple[str, bytes]]:
    """The copy's files and what is in them."""
    for folder, origin in sorted(SOURCES.items()):
        for path in sorted((ROOT / origin).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                yield f"{folder}/{path.relative_to(ROOT / origin).as_posix()}", path.read_bytes()


def compiled(names: Iterable[str]) -> list[str]:
    """Those of the copy's files that mypyc shall compile; `__init__.py` has nothing that takes time."""
    return sorted(
        name
        for name in names
        if any(fnmatch(name, pattern) for pattern in COMPILED) and not name.endswith("__init__.py")
    )


def patched(files: dict[str, bytes]) -> dict[str, bytes]:
    found = dict(files)
    for name, old, new in PATCHES:
        text = found[name].decode()
        assert text.count(old) == 1, f"{name} should have {old!r} once: see PATCHES in {__file__}"
        found[name] = text.replace(old, new).encode()
    return found


def build() -> Path:
    """The folder of the compiled copy, made if there is none of these sources."""
    files = dict(sources())
    state = hashlib.sha256(repr((sys.version, sys.prefix, version("mypy"))).encode())
    for name, content in files.items():
        state.update(f"{name} {len(content)}\n".encode() + content)
    folder = BUILDS / state.hexdigest()[:16]
    if not folder.exists():
        if find_spec("setuptools") is None or shutil.which("cc") is None:
            sys.exit("compiling needs a C compiler, and setuptools in .venv")
        print("compiling the simulator, which takes some minutes", file=sys.stderr, flush=True)
        BUILDS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILDS) as made:
            _compile(Path(made), patched(files))
            Path(made).rename(folder)
            Path(made).mkdir()  # For its end.
        for old in sorted(BUILDS.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(old)
    return folder


def _compile(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in {**files, "mypy.ini": _CONFIG.encode()}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    command = [sys.executable, "-c", _SETUP, *compiled(files)]
    done = subprocess.run(command, cwd=folder, env=_environ(folder), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}mypyc failed: see PATCHES in {__file__}")
    for rest in ("build", ".mypy_cache"):
        shutil.rmtree(folder / rest, ignore_errors=True)


def _environ(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "MYPYPATH": str(folder)}


def check(folder: Path, seeds: Iterable[int]) -> int:
    """Tell each seed's story both ways, and count what twenty others reach."""
    different = 0
    for asked in [*(("--seed", str(seed)) for seed in seeds), ("--many", "20")]:
        pure, _ = _told("tests.sim", asked, ROOT, dict(os.environ))
        fast, complaints = _told("sim", asked, folder, _environ(folder))
        difference = list(islice(unified_diff(pure, fast, "pure", "compiled", n=1), 20))
        print(*asked, "DIFFERENT" if difference else "the same", f"{len(pure)} lines", flush=True)
        if difference:
            different += 1
            print(*difference, complaints[-2000:], sep="\n")
    return 1 if different else 0


def _told(
    module: str, asked: tuple[str, str], folder: Path, environ: dict[str, str]
) -> tuple[list[str], str]:
    command = [sys.executable, "-m", module, *asked]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "seeds/s" not in line], done.stderr


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.fast", description=__doc__)
    parser.add_argument("--kind", default="replicas")
    parser.add_argument("--mutants", nargs="?", const="")
    parser.add_argument("--check", nargs="*", type=int, metavar="SEED")
    asked, others = parser.parse_known_args(arguments)
    if asked.kind != "replicas" or asked.mutants is not None:
        sys.exit("FAST=1 is for KIND=replicas only, and not for mutants")
    folder = build()
    if asked.check is not None:
        return check(folder, asked.check or SEEDS)
    run = [sys.executable, "-m", "sim", *others]
    return subprocess.run(run, cwd=folder, env=_environ(folder)).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
