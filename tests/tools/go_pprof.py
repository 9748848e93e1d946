"""Go's own `go tool pprof`, where Go is installed: a reader of our profiles that is not ours.

Go brings it compiled up to version 1.24. Later ones compile it when it is first used, a minute of CPU time, and keep it:
these are asked only where DUNLIN_TEST_PPROF=1 says so, which `./dev check` does.
"""

import os
import shutil
import subprocess

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("DUNLIN_")}


def reason_to_skip():
    """Why it is not used; None if it is."""
    if shutil.which("go") is None:
        return "no go in PATH"
    tools = subprocess.run(["go", "env", "GOTOOLDIR"], capture_output=True, text=True).stdout.strip()
    if os.path.exists(os.path.join(tools, "pprof")) or os.environ.get("DUNLIN_TEST_PPROF") == "1":
        return None
    return "this Go would have to compile pprof first (DUNLIN_TEST_PPROF=1 lets it)"


def pprof(home, *options):
    """What it prints. `home`: a folder for what it leaves behind."""
    cache = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    environment = {**ENVIRONMENT, "HOME": home, "GOTOOLCHAIN": "local", "GOCACHE": cache}
    if not pprof.compiled:
        subprocess.run(["go", "tool", "pprof", "-h"], capture_output=True, env=environment)
        pprof.compiled = True
    done = subprocess.run(["go", "tool", "pprof", *options], capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


pprof.compiled = False
