"""Generates the message classes from proto/: `python -m runtime.highavailability.etcd.generate [DIRECTORY]`.

Only messages: the stubs are made by hand, because the service paths are etcd's and not those of our package.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
PROTO = "flinklike_etcdpb.proto"
GENERATED = _HERE / "generated"


def generate(directory: Path) -> None:
    """Write the classes into `directory`. Needs grpcio-tools and mypy-protobuf (extra `dev`)."""
    plugin = Path(sys.executable).parent / "protoc-gen-mypy"
    arguments = [
        f"--proto_path={_HERE / 'proto'}",
        f"--python_out={directory}",
        f"--plugin=protoc-gen-mypy={plugin}",
        f"--mypy_out=quiet:{directory}",
        PROTO,
    ]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
