"""What `dmq pipeline audit` asks of a cluster before Spark starts."""

from confluent_kafka.admin import AdminClient, NewTopic

from dmq.cli.pipeline_audit import _compacted
from dmq.cli.session import Session
from dmq.testing import Broker


def test_compacted_topics_are_told_from_others() -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        compacted = NewTopic("latest", 1, config={"cleanup.policy": "compact"})
        for future in admin.create_topics([NewTopic("events", 1), compacted]).values():
            future.result(30)
        session = Session(broker.bootstrap_servers, {})
        assert _compacted(session, ["events", "latest"]) == {"latest"}
