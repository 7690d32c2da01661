"""Ray Train over a service: a run of two workers that is killed, and resumed."""

from __future__ import annotations

import faulthandler
import json
import os
import secrets
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.services.raycluster import ENVIRONMENT, strays

pytestmark = [
    pytest.mark.untidy,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs ray"),
]

SCRIPT = '''
"""Start a service on this machine, and train: each worker notes the numbers it has had, and kills itself once."""

import json
import os
import signal
import sys
import tempfile

import ray
import ray.train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import tundish as td

folder = sys.argv[1]


def loop(config):
    import torch.distributed as dist

    rank = ray.train.get_context().get_world_rank()
    assert dist.get_world_size() == 2
    ds = td.service.get_dataset_shard("numbers", wrapped=lambda ds: ds.batch(5))
    had = []
    with ds.iterator(workers=1) as batches:
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as saved:
                with open(os.path.join(saved, f"state-{rank}.json")) as file:
                    stored = json.load(file)
            batches.load_state_dict(stored["state"])
            had = stored["had"]
        for step, batch in enumerate(batches):
            had += [int(n) for n in batch["n"]]
            if step % 2 == 0:
                with tempfile.TemporaryDirectory() as saved:
                    with open(os.path.join(saved, f"state-{rank}.json"), "w") as file:
                        json.dump({"state": batches.state_dict(), "had": had}, file)
                    ray.train.report({"had": len(had)}, checkpoint=Checkpoint.from_directory(saved))
            mark = os.path.join(folder, "killed")
            if step == 5 and rank == 1 and not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        with open(os.path.join(folder, f"had-{rank}.json"), "w") as file:
            json.dump({"had": had, "resumed": checkpoint is not None}, file)


def element(n):
    return {"n": n}


if __name__ == "__main__":
    ray.init(num_cpus=6, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    address = ray.get_runtime_context().gcs_address
    fleet = td.service.start(2, 1, address, work_dir=os.path.join(folder, "dispatcher"))
    numbers = td.Dataset.range(100).shuffle(None, seed=1).map(element)
    td.service.register_dataset(fleet.target, numbers, dataset_id="numbers")
    trainer = TorchTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=os.path.join(folder, "runs"),
            failure_config=FailureConfig(max_failures=2),
        ),
    )
    trainer.fit()
    fleet.stop()
    ray.shutdown()
'''


def test_a_run_that_is_killed_is_resumed(tmp_path: Path) -> None:
    faulthandler.cancel_dump_traceback_later()  # a busy machine takes longer than that: the run has a limit of its own
    script, token = tmp_path / "train.py", tmp_path / "token"
    script.write_text(SCRIPT)
    token.touch(0o600)
    token.write_text(secrets.token_hex())
    short = Path(f"/tmp/tdrt-{secrets.token_hex(4)}")  # there are sockets in it
    short.mkdir()
    environ = {
        **os.environ,
        **ENVIRONMENT,
        "TUNDISH_SERVICE_TOKEN_FILE": str(token),
        "TMPDIR": str(short),
        "RAY_TRAIN_V2_ENABLED": "1",
    }
    try:
        run = subprocess.run(
            [sys.executable, str(script), str(tmp_path)],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            env=environ,
        )
    finally:
        for pid in strays(short):
            os.kill(pid, 9)
        shutil.rmtree(short, ignore_errors=True)

    assert run.returncode == 0, run.stderr[-4000:]
    assert (tmp_path / "killed").exists()
    found: list[dict[str, Any]] = [
        json.loads((tmp_path / f"had-{rank}.json").read_text()) for rank in range(2)
    ]
    assert all(each["resumed"] for each in found)
    assert len(found[0]["had"]) == len(found[1]["had"]) == 50
    assert sorted(found[0]["had"] + found[1]["had"]) == list(range(100))
