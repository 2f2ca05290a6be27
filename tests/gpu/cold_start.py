"""Seconds from the start of Python to the first trained step, in new processes, with an empty and then a full cache.

`python -m tests.gpu.cold_start` prints JSON; with a design, it is one such process. AT_ONCE processes run at once.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

DESIGNS = ["4xfull", *(f"4x{name}+full@3" for name in
           ("hgrn", "retnet", "gla", "hgrn2", "deltanet", "gated_deltanet", "mamba2", "kda"))]  # fmt: skip


def one(design: str) -> None:
    import torch

    from tests.gpu.proxy import trainer

    imported = time.time()
    trained = trainer(design, tuple(1e-3 * 0.8**k for k in range(8)), 100)
    trained.advance(1)
    torch.cuda.synchronize()
    first = time.time()
    trained.advance(5)
    torch.cuda.synchronize()
    started = float(os.environ["STARTED"])
    seconds = {"imported": imported - started, "first_step": first - started, "graph": time.time() - started}
    print(json.dumps({name: round(value, 1) for name, value in seconds.items()}))


def start(design: str, folder: str) -> Any:
    caches = {"TRITON_CACHE_DIR": f"{folder}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.gpu.cold_start", design],
        env=os.environ | caches | {"STARTED": str(time.time())},
        capture_output=True,
        text=True,
    )
    return json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else run.stderr[-1000:]


def main() -> None:
    def both(design: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            return {"cold": start(design, folder), "warm": start(design, folder)}

    at_once = int(os.environ.get("AT_ONCE", "1"))
    with ThreadPoolExecutor(at_once) as pool:
        report = dict(zip(DESIGNS, pool.map(both, DESIGNS), strict=True))
    print(json.dumps({"at_once": at_once} | report, indent=2))


if __name__ == "__main__":
    one(sys.argv[1]) if len(sys.argv) > 1 else main()
