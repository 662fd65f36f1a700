"""Which APIs and versions this door serves, and where their handlers are.

The table is what ApiVersions tells clients; a handler's module is imported with its first request.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.wire import registry

API_VERSIONS = 18
PRODUCE = 0
PRODUCE_VERSION_MIN = 3
"""Accepted; 0 is advertised, because older librdkafka takes a higher minimum as "no compression"
(KAFKA-18659)."""

SERVED: dict[int, tuple[str, int, int]] = {
    0: ("k00_produce", 0, 13),
    1: ("k01_fetch", 4, 18),
    2: ("k02_list_offsets", 1, 11),
    3: ("k03_metadata", 0, 13),
    8: ("k08_offset_commit", 2, 10),
    9: ("k09_offset_fetch", 1, 10),
    10: ("k10_find_coordinator", 0, 6),
    11: ("k11_join_group", 0, 9),
    12: ("k12_heartbeat", 0, 4),
    13: ("k13_leave_group", 0, 5),
    14: ("k14_sync_group", 0, 5),
    15: ("k15_describe_groups", 0, 6),
    16: ("k16_list_groups", 0, 5),
    18: ("k18_api_versions", 0, 4),
    19: ("k19_create_topics", 2, 7),
    20: ("k20_delete_topics", 1, 6),
    21: ("k21_delete_records", 0, 2),
    22: ("k22_init_producer_id", 0, 5),
    23: ("k23_offset_for_leader_epoch", 2, 4),
    24: ("k24_add_partitions_to_txn", 0, 5),
    25: ("k25_add_offsets_to_txn", 0, 4),
    26: ("k26_end_txn", 0, 5),
    27: ("k27_write_txn_markers", 1, 2),
    28: ("k28_txn_offset_commit", 0, 5),
    32: ("k32_describe_configs", 1, 4),
    33: ("k33_alter_configs", 0, 2),
    35: ("k35_describe_log_dirs", 1, 5),
    37: ("k37_create_partitions", 0, 3),
    42: ("k42_delete_groups", 0, 2),
    43: ("k43_elect_leaders", 0, 2),
    44: ("k44_incremental_alter_configs", 0, 1),
    45: ("k45_alter_partition_reassignments", 0, 1),
    46: ("k46_list_partition_reassignments", 0, 0),
    47: ("k47_offset_delete", 0, 0),
    55: ("k55_describe_quorum", 0, 2),
    57: ("k57_update_features", 0, 2),
    60: ("k60_describe_cluster", 0, 2),
    61: ("k61_describe_producers", 0, 0),
    64: ("k64_unregister_broker", 0, 0),
    65: ("k65_describe_transactions", 0, 0),
    66: ("k66_list_transactions", 0, 2),
    68: ("k68_consumer_group_heartbeat", 0, 1),
    69: ("k69_consumer_group_describe", 0, 1),
    74: ("k74_list_config_resources", 0, 1),
    75: ("k75_describe_topic_partitions", 0, 0),
}


class Handler(NamedTuple):
    """What a request of one API and version goes through."""

    decode: Callable[[memoryview, int], tuple[Any, int]]
    handle: Callable[[Service, Call, Any], None]
    encode: Callable[[Any], list[Any]]
    is_flexible: bool
    """Whether the response header has room for tags."""


class Handlers:
    """The handlers that were asked for so far, by (key, version)."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], Handler] = {}

    def find(self, api_key: int, version: int) -> Handler | None:
        """The handler; None if this API or version is not served."""
        handler = self._found.get((api_key, version))
        if handler is not None:
            return handler
        entry = SERVED.get(api_key)
        if entry is None or not entry[1] <= version <= entry[2]:
            return None
        if api_key == PRODUCE and version < PRODUCE_VERSION_MIN:
            return None
        module = import_module(f"dmq.doors.kafka_api.{entry[0]}")
        api = registry.api(api_key)
        handler = Handler(
            api.request_decoder(version),
            module.handle,
            api.response_encoder(version),
            api_key != API_VERSIONS and api.is_flexible(version),
        )
        self._found[api_key, version] = handler
        return handler


def answer_unknown_api_versions(service: Service, call: Call) -> None:
    """A version of ApiVersions that we don't know: version 0, error 35, with the list of keys."""
    module = import_module("dmq.doors.kafka_api.k18_api_versions")
    module.answer_unknown_version(service, call)
