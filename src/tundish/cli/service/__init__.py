"""``tundish service dispatcher|worker|status``: the data service where no engine starts it (Kubernetes, Slurm, by hand).

Each action is a module here, imported when it is called: ``--help`` is immediate.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HELP = """\
exit status:
  0    done; for servers: ended by SIGTERM or SIGINT
  1    an unexpected error
  2    usage: an invalid argument, address, token, port or journal, or no answer
"""


def run(action: str, **given: Any) -> int:
    """Carry out an action.

    Parameters
    ----------
    action : {"dispatcher", "worker", "status"}
        The action.
    **given
        Its arguments.

    Returns
    -------
    int
        The exit status, as `HELP` lists them.
    """
    module = import_module(f"tundish.cli.service.{'status' if action == 'status' else 'serving'}")
    status: Any = getattr(module, action)(**given)
    return int(status)
