"""The topic for dead letters, as `dmq pipeline land` makes it."""

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from spark.feeding import create

from dmq.cli.exits import CommandError
from dmq.cli.pipeline_dead_letters import HEADERS_BYTES_MAX, prepare
from dmq.cli.session import Session
from dmq.testing import Broker


def test_it_has_room_for_the_largest_record_and_its_headers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Broker() as broker:
        session = Session(broker.bootstrap_servers, {})
        create(broker.bootstrap_servers, "events", 3, {"max.message.bytes": "5000000"})
        prepare(session, "events", "events-dead")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert len(admin.list_topics("events-dead", 30).topics["events-dead"].partitions) == 3
        asked = ConfigResource(ResourceType.TOPIC, "events-dead")
        settings = admin.describe_configs([asked])[asked].result(30)
        assert int(settings["max.message.bytes"].value) == 5_000_000 + HEADERS_BYTES_MAX
        assert "Made topic events-dead" in capsys.readouterr().err
        prepare(session, "events", "events-dead")
        assert capsys.readouterr().err == ""
        create(broker.bootstrap_servers, "narrow")
        prepare(session, "events", "narrow")
        assert "max.message.bytes=5065536" in capsys.readouterr().err
        with pytest.raises(CommandError, match="no topic 'nothing'"):
            prepare(session, "nothing", "events-dead")
