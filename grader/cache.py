"""Evaluations of the initial system, kept between runs: under equal conditions its waves are not run again.

Only validation of P0 is ever kept. A hidden evaluation has no cache: it is claimed and run once for each run.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp


def borrow(cache: Path, digest: str, out_dir: Path) -> bool:
    """Copy the kept waves of ``digest`` into a folder that has none; True when there were some.

    The waves carry the digest themselves, and who reads them checks it: a wrong cache is refused, never believed.
    """
    kept = cache / digest / "waves"
    if (out_dir / "waves").exists() or not kept.is_dir():
        return False
    partial = Path(mkdtemp(prefix=".waves-", dir=out_dir))
    shutil.copytree(kept, partial, dirs_exist_ok=True)
    partial.chmod(0o755)
    partial.rename(out_dir / "waves")
    return True


def keep(cache: Path, digest: str, out_dir: Path) -> None:
    """Keep the waves of a finished evaluation for other runs. A cache that cannot be written is none."""
    target = cache / digest
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        if target.exists():
            return
        partial = Path(mkdtemp(prefix=".p0-", dir=cache))
        try:
            shutil.copytree(out_dir / "waves", partial / "waves")
            partial.rename(target)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
