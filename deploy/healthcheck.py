"""Whether the process in this container is well: asks its /healthz, and exits with 1 where the answer is not 200.

In Python because the image has no curl. METRICS_PORT is the process's --metrics-port.
"""

import os
import sys
import urllib.error
import urllib.request

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy between a process and itself


def main() -> int:
    page = f"http://127.0.0.1:{int(os.environ.get('METRICS_PORT', '9102'))}/healthz"
    try:
        with _OPENER.open(page, timeout=4) as reply:
            return 0 if reply.status == 200 else 1
    except (OSError, urllib.error.URLError):
        return 1


if __name__ == "__main__":
    sys.exit(main())
