"""``python -m tundish``: the command line where the script is not on the path."""

from tundish.cli import main

raise SystemExit(main())
