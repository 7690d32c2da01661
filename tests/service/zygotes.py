"""Zygotes of agents as forks of the agents, which have imported what workers need: they begin at once."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import traceback

from tundish.forked import let_go
from tundish.loader.run.starting.control import scratch_file
from tundish.loader.run.starting.launcher import Launcher
from tundish.loader.run.starting.template import Forked
from tundish.loader.run.starting.zygote import _close_but, serve


class ForkedLauncher(Launcher):
    """A launcher whose zygote is a fork of this process; an interpreter that starts takes half a second."""

    def _begin(self, theirs: socket.socket, threads: int) -> Forked | subprocess.Popen[bytes]:
        if self.kind != "zygote":  # interpreters of their own are asked for
            return super()._begin(theirs, threads)
        self._stderr = scratch_file()
        pid = os.fork()
        if pid:
            return Forked(pid)
        try:
            gc.freeze()
            os.setsid()
            let_go()
            self._control.close()
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd, standard in ((nothing, 0), (nothing, 1), (self._stderr, 2)):
                os.dup2(fd, standard)
            _close_but([theirs.fileno()])
            # The test's own go to where pytest captures them.
            sys.stdout, sys.stderr = (open(fd, "w", 1, closefd=False) for fd in (1, 2))  # noqa: SIM115
            os.environ.update(self._environ)
            serve(theirs.detach(), self._owner, True, ())
        except BaseException:  # noqa: BLE001 - it never returns to the agent
            traceback.print_exc()
        finally:
            os._exit(1)
