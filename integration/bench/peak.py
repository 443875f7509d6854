#!/usr/bin/env python3
"""peak.py COMMAND...: runs it, and then prints {"peak_rss_bytes": N} on a line of its own."""

import json
import resource
import subprocess
import sys

code = subprocess.run(sys.argv[1:]).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps({"peak_rss_bytes": peak}), flush=True)
sys.exit(code)
