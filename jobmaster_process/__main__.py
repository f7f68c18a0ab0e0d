"""`python -m jobmaster_process [-D key=value ...]`: one JobMaster process."""

from __future__ import annotations

import sys

from jobmaster_process.entry_point import JobMasterEntryPoint
from runtime.entrypoint.process import run_process

if __name__ == "__main__":
    sys.exit(run_process("jobmaster", JobMasterEntryPoint, sys.argv[1:], has_lease=True))
