"""``python -P -m runner``: the same command as the console script ``runner``."""

from runner.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
