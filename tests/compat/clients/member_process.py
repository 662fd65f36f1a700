"""A member of a group as a process of its own, so that it can be killed.

`python -m compat.clients.member_process KIND BOOTSTRAP TOPIC GROUP SESSION_MS` polls for ever, and
prints its partitions each time they change: `[0, 3]`. Called by tests of what follows from a death.
"""

import json
import sys

from compat.clients.members import join


def run(kind: str, bootstrap: str, topic: str, group: str, session_ms: str) -> None:
    member = join(kind, bootstrap, topic, group, session_ms=session_ms)
    known: set[int] | None = None
    while True:
        member.poll()
        if member.assigned() != known:
            known = member.assigned()
            print(json.dumps(sorted(known)), flush=True)


if __name__ == "__main__":
    run(*sys.argv[1:])
