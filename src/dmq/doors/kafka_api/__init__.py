"""One handler per API key, named as its message in `wire.messages`; `served` is the table.

A handler is `handle(service, call, request)`: it calls verbs of the service and ends the call once.
"""
