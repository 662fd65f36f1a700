"""A file for `spark-submit --py-files`: the packages that Spark needs on executors, as they are here.

Owns what goes into it. Libraries with compiled code can't be loaded from a zip file: they are installed
where executors run.
"""

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path

from dmq.spark.pipelines.failures import PipelineError

PACKAGES = ("dmq", "pyspark_dmq")
NEEDED = ("pyarrow", "numpy", "crc32c", "cramjam", "lz4")
"""What the data source imports in an executor, and a zip file can't bring."""
_SERVER = ("broker", "cli", "doors", "machines", "raft", "storage", "testing")
"""The data source imports none of these."""
_NOT_SENT = {*_SERVER, "__pycache__", "templates"}
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The same packages make the same file, byte for byte."""


def pack(file: Path) -> int:
    """Write the file, anew if it is there; returns how many modules are in it."""
    if file.suffix != ".zip":
        raise PipelineError(f"{file} does not end in .zip", "Spark looks at the name's end.")
    if not file.parent.is_dir():
        raise PipelineError(f"There is no folder {file.parent}", "Make it first.")
    count = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, path in _modules():
            packed.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
            count += 1
    return count


def _modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        folder = _folder(package)
        for path in sorted(folder.rglob("*")):
            within = path.relative_to(folder)
            if path.is_file() and not _NOT_SENT & set(within.parts):
                yield f"{package}/{within.as_posix()}", path


def _folder(package: str) -> Path:
    """Where it lies; it is not imported, since Spark may not be installed here."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places or not Path(places[0]).is_dir():
        raise PipelineError(f"{package} does not lie in a folder here", "Install dmq with pip.")
    return Path(places[0])
