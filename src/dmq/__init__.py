"""dmq: a distributed message queue that speaks the Kafka protocol.

The house, from the ground up (imports point down only):

    cli                         commands for people
    testing                     brokers for other people's tests
    doors                       ways in: kafka and, later, others
    broker                      the queue itself
    storage                     the only layer that touches the disk
    wire | raft | machines      pure cores: bytes · agreement · meaning
    records                     the batch, the noun of the house
    codecs · config             compression · settings
    types · errors              a name for every number · Kafka's code table

`docs/ARCHITECTURE.md` tells the journey of a batch through it.
"""

__version__ = "0.1.0"
