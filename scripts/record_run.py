#!/usr/bin/env python
"""Make the recorded run of `vibetui demo` and of the tests from a finished run folder.

    scripts/record_run.py RUN [--trajectories N] [--replace FROM=TO …] [--out FILE]

Keeps what the screens show: journal, candidates with their diffs, the store, validations, training curves, logs, the
report. Leaves out weights, the sealed hidden results, workspace, sources and materialised trees. Paths and the boot id
of the machine are replaced; the journal is written again by our own writer, so that its chain holds.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import socket
import sys
import tarfile
import tempfile
from pathlib import Path

from runner.record.events import ENVELOPE, parse_payload
from runner.record.journal import Journal, read
from runner.record.line import event_fields
from runner.record.rundir import RunDir

OUT = Path(__file__).parent.parent / "vibetui" / "recorded" / "run.tar.xz"
PATTERNS = (
    "run.toml",
    "candidates/*/manifest.json",
    "candidates/*/diffs/*",
    "store/manifests/*.json",
    "store/objects/*/*",
    "models/*/manifest.json",
    "models/*/train.log",
    "models/*/train.jsonl",
    "evals/*/score.json",
    "evals/*/problems.jsonl",
    "logs/*.log",
    "report/report.json",
)


def main() -> None:
    """Read the command line and write the archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--trajectories", type=int, default=10_000, help="kept per validation (default: all)")
    parser.add_argument("--replace", action="append", default=[], metavar="FROM=TO", help="a path to replace")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    swaps = dict(item.split("=", 1) for item in args.replace)
    swaps[str(Path.home() / ".cache")] = "/home/user/.cache"
    swaps[str(Path(__file__).resolve().parent.parent)] = "/home/user/vibetraining-bench"
    files = {"journal.jsonl": journal_of(args.run, swaps)}
    for path in kept(args.run, args.trajectories):
        files[str(path.relative_to(args.run))] = swapped(path.read_bytes(), swaps)
    check(files, swaps)
    args.out.write_bytes(packed(args.run.name, files))
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.2f} MB, {len(files)} files")


def kept(run: Path, trajectories: int) -> list[Path]:
    """The files to keep, sorted; of each validation only the first trajectories."""
    found = [path for pattern in PATTERNS for path in run.glob(pattern) if path.is_file() and not path.is_symlink()]
    for folder in sorted(run.glob("evals/*/trajectories")):
        found += sorted(folder.glob("*.jsonl"))[:trajectories]
    return sorted(found)


def swapped(raw: bytes, swaps: dict[str, str]) -> bytes:
    """``raw`` without the names of this machine's places."""
    for old, new in swaps.items():
        raw = raw.replace(old.encode(), new.encode())
    return raw


def journal_of(run: Path, swaps: dict[str, str]) -> bytes:
    """The journal, written again: same events, times and budget seconds, a chain of its own."""
    now = [0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.create(Path(folder) / "journal.jsonl", lambda: now[1], now=lambda: now[0])
        for event in read(RunDir(run).journal_file):
            now[:] = event.t, event.el
            text = swapped(json.dumps(event_fields(event)).encode(), swaps)
            fields = {key: value for key, value in json.loads(text).items() if key not in ENVELOPE}
            if "boot_id" in fields:
                fields["boot_id"] = "recorded"
            journal.append(parse_payload(fields))  # type: ignore[arg-type]
        journal.close()
        return journal.path.read_bytes()


def check(files: dict[str, bytes], swaps: dict[str, str]) -> None:
    """Refuse an archive that still names this machine."""
    for name, raw in files.items():
        for word in (*swaps, socket.gethostname()):
            if word.encode() in raw:
                sys.exit(f"{name} still holds {word!r}")


def packed(root: str, files: dict[str, bytes]) -> bytes:
    """The archive: the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            info = tarfile.TarInfo(f"{root}/{name}")
            info.size, info.mode = len(files[name]), 0o644
            tar.addfile(info, io.BytesIO(files[name]))
    return lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)


if __name__ == "__main__":
    main()
