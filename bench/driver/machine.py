"""What a figure means nothing without: the machine it was measured on."""

import os
import platform
import re
from pathlib import Path


def _field(file, pattern):
    found = re.search(pattern, Path(file).read_text(), re.MULTILINE)
    return found.group(1).strip() if found else "not known"


def describe():
    memory_kb = int(_field("/proc/meminfo", r"^MemTotal:\s*(\d+)"))
    return {
        "cpu": _field("/proc/cpuinfo", r"^(?:model name|CPU part)\s*:\s*(.*)"),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_kb / 2**20, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "system": _field("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)'),
        "load_before": round(os.getloadavg()[0], 2),
    }
