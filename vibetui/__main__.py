"""``python -m vibetui`` is the command ``vibetui``."""

from vibetui.cli import main

raise SystemExit(main())
