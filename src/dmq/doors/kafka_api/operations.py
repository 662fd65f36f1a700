"""What clients may do with topics and with the cluster, as the bits that several answers carry.

There is no authorizer: everybody may do everything that there is to allow.
"""

NOT_ASKED = -(2**31)
"""The client did not want to know."""
ON_TOPICS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""Read, write, create, delete, alter, describe, describe and alter configs."""
ON_CLUSTER = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""Create, alter, describe, cluster action, describe and alter configs, idempotent write."""
