"""What a measurement ran on: everything that figures depend on, and no path."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine

BUSY_SHARE = 0.5
PACKAGES = ("torch", "transformers", "tokenizers", "numpy")


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores`: those that this process may use. `load_average`: of the last minute at the start, None where the
    system does not tell. `flags`: environment variables that change the speed of a pass, as they were set."""

    cpu: str
    cores: int
    threads: int
    os: str
    model: str
    dtype: str
    attention: str
    device: str
    cpu_capability: str
    flags: dict[str, str]
    versions: dict[str, str]
    load_average: float | None

    @property
    def is_busy(self) -> bool:
        return self.load_average is not None and self.load_average > BUSY_SHARE * self.cores

    @property
    def name(self) -> str:
        """One line for tables and plots."""
        return f"{self.cpu}, {self.cores} cores, {self.threads} threads"

    def to_json(self) -> dict[str, Any]:
        return {
            "cpu": self.cpu,
            "cores": self.cores,
            "threads": self.threads,
            "os": self.os,
            "model": self.model,
            "dtype": self.dtype,
            "attention": self.attention,
            "device": self.device,
            "cpu_capability": self.cpu_capability,
            "flags": self.flags,
            "versions": self.versions,
            "load_average": self.load_average,
            "busy": self.is_busy,
        }


def this_machine(engine: TransformersEngine) -> Machine:
    import torch

    from cachestack.engines.transformers.adapter import attention_name
    from cachestack.engines.transformers.load import GQA_VARIABLE

    load = load_average()  # before the model is opened: that work is ours
    loaded = engine.loaded
    return Machine(
        cpu=cpu_name(),
        cores=num_cores(),
        threads=torch.get_num_threads(),
        os=f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        model=Path(engine.model).name,  # a name, or a folder whose place is nobody's business
        dtype=loaded.dtype,
        attention=attention_name(loaded.model),
        device=str(loaded.device),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        flags={name: os.environ[name] for name in (GQA_VARIABLE, "OMP_NUM_THREADS") if name in os.environ},
        versions={"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES},
        load_average=load,
    )


def cpu_name() -> str:
    if sys.platform == "linux":
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        found = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    elif sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    else:
        found = platform.processor()
    return found or platform.processor() or platform.machine()


def num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_average() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def encoder_machine(encoder: str) -> Machine:
    """For measurements without a language model: the model is the encoder, which computes in float32."""
    import torch

    return Machine(
        cpu=cpu_name(),
        cores=num_cores(),
        threads=torch.get_num_threads(),
        os=f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        model=Path(encoder).name,
        dtype="float32",
        attention="sdpa",
        device="cpu",
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        flags={name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ},
        versions={"python": platform.python_version()}
        | {name: metadata.version(name) for name in (*PACKAGES, "faiss-cpu", "diskcache")},
        load_average=load_average(),
    )


SERVER_PACKAGES = ("starlette", "uvicorn", "httptools", "uvloop", "orjson", "httpx")


def server_machine(packages: Sequence[str] = SERVER_PACKAGES) -> Machine:
    """For measurements without any model. Of `packages` those that are installed are named."""
    return Machine(
        cpu=cpu_name(),
        cores=num_cores(),
        threads=1,
        os=f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        model="none",
        dtype="none",
        attention="none",
        device="cpu",
        cpu_capability="",
        flags={},
        versions={"python": platform.python_version()}
        | {name: version for name in packages if (version := _version(name)) is not None},
        load_average=load_average(),
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
