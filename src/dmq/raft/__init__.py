"""Agreement: pure, numbers only, never sees a record, a clock, a disk or a socket.

    core        the contract, the roles' table, inputs and outputs      read this first
    facts       what a replica says of itself
    state       what every role has, and how roles change
    voting      how a voter answers            candidate   how votes are won
    follower    taking the leader's log        leader      sending it, committing it
    leading     what a leader knows            changing    voters, log start, handovers
    progress    one follower as its leader sees it
    membership  the next single step to the wanted voters
    view        one log as positions           marks       their arithmetic
    quorum      majorities                     settings    every number, with its reason
    messages    what replicas say              writes      what is to be done to the log
    links       which peers can be heard, one table per broker

Storage uses `marks` alone; the broker's partition and simulators use the rest through `core`.
"""
