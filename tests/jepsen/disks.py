"""Small disks that can be filled: an ext4 image per broker, mounted where its data goes (Linux, root).

The images are sparse: what is not written takes no room. Owns mounting, filling and unmounting. Called
by the runner, before the brokers start.
"""

import os
import shutil
import subprocess
from pathlib import Path

SIZE_BYTES = 2 << 30


def why_not() -> str:
    """Why disks can't be made here; empty if they can."""
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found"
    return "" if os.geteuid() == 0 else "mounting needs root"


class Disk:
    """A disk of its own for one broker."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image, self.folder = image, folder
        self._filler = folder / "filler"
        folder.mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        _run(["mkfs.ext4", "-q", "-m", "0", str(image)])
        _run(["mount", "-o", "loop", str(image), str(folder)])
        (folder / "lost+found").rmdir()

    def fill(self) -> None:
        """Not a byte is left for whoever wants more."""
        with self._filler.open("wb") as file:
            size = 1 << 30
            while size:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
                except OSError:
                    size //= 2

    def relieve(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        _run(["umount", "-l", str(self.folder)])
        self._image.unlink()


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
