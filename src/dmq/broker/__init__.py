"""The queue itself: partitions, the turn that makes their appends durable, and the verbs on them.

`runtime` is the only module here that meets the clock, the loop and threads; everything else is
called with values and a `now`, so that a simulator runs the same code.
"""
