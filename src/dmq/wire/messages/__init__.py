"""One module per API key: the tables of its request and response, for all versions that we speak.

The listing of this folder is the coverage. `stored_*` are the records that coordinators keep in
their topics, told in the same way. A module is imported when its key is first used.
"""
