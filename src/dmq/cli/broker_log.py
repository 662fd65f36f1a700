"""What a broker says about itself, on stderr: `logging.level` and `logging.format`.

Owns the two formats, text for people and JSON for collectors. Called once by `start`.
"""

import json
import logging
import sys
import time

_TEXT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, error."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr(level: str, format_: str, *, is_quiet: bool) -> None:
    """Send the log of everything to stderr; quiet keeps warnings and worse."""
    handler = logging.StreamHandler(sys.stderr)
    if format_.lower() == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter(_TEXT, "%H:%M:%S"))
    number = logging.getLevelName(level.upper())
    assert isinstance(number, int)
    logging.basicConfig(
        level=max(number, logging.WARNING) if is_quiet else number, handlers=[handler]
    )
