"""Agreement: pure, numbers only, never sees a record, a clock, a disk or a socket."""
