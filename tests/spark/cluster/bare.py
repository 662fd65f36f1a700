"""A Python with everything that these tests run with, except dmq: for workers that lack it."""

import sys
import sysconfig
from pathlib import Path


def bare_python(folder: Path, without: str = "dmq") -> Path:
    """A virtual environment whose packages are links to ours; returns its executable."""
    ours = Path(sysconfig.get_path("purelib"))
    packages = folder / Path(*ours.parts[-3:])  # lib/python3.11/site-packages
    packages.mkdir(parents=True)
    for each in ours.iterdir():
        # `_editable_impl_dmq.pth` makes dmq importable, so names are looked at as a whole.
        if "dmq" not in each.name and without not in each.name:
            (packages / each.name).symlink_to(each)
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    executable = folder / "bin" / "python"
    executable.parent.mkdir()
    executable.symlink_to(base)
    return executable
