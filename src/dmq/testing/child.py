"""The child process behind `Broker(in_process=False)`: settings as JSON in, one line of JSON out.

It ends with its parent: when its standard input closes, nobody needs it any longer.
"""

import json
import os
import signal
import sys
import threading

from dmq.config.broker import BrokerConfig
from dmq.doors.serve import Ready, run_broker
from dmq.errors import StorageError


def main() -> int:
    config = BrokerConfig.of(json.loads(sys.argv[1]))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        return run_broker(config, _tell)
    except (OSError, StorageError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1


def _tell(ready: Ready) -> None:
    line = {"bootstrap_servers": ready.bootstrap_servers, "seconds": ready.seconds}
    print(json.dumps(line), flush=True)  # noqa: T201


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
