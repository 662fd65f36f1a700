"""What is told of a run, from Spark's own messages and reports."""

from dmq.spark.pipelines.progress import Progress, lag_of

REPORT = {
    "name": "spark_catalog.default.orders",
    "batchId": 3,
    "numInputRows": 1200,
    "processedRowsPerSecond": 600.0,
    "sources": [
        {
            "endOffset": {"orders": {"0": 100, "1": 90}},
            "latestOffset": {"orders": {"0": 105, "1": 90, "2": 7}},
        }
    ],
}


def test_messages_move_flows_and_the_run() -> None:
    progress = Progress()
    flow = progress.on_message("Flow spark_catalog.default.orders is RUNNING.")
    assert flow is not None
    assert (flow.name, flow.state) == ("orders", "running")
    progress.on_message("Flow spark_catalog.default.orders has COMPLETED.")
    assert flow.state == "completed"
    assert progress.on_message("Run is COMPLETED.") is None
    assert progress.state == "completed"


def test_a_failed_flow_has_its_reason() -> None:
    progress = Progress()
    progress.on_message("Flow 'sums' has FAILED.\nError: no such column\n\tat org.apache…")
    assert progress.flows["sums"].error == "no such column"


def test_a_reason_is_told_without_what_spark_puts_around_it() -> None:
    progress = Progress()
    progress.on_message(
        "Flow 'sums' has FAILED. Error: [STREAM_FAILED] Query [id = 1, runId = 2] terminated with"
        " exception: No broker answers. SQLSTATE: XXKST\n=== Streaming Query ==="
    )
    assert progress.flows["sums"].error == "No broker answers."
    progress.on_message("Flow 'sums' is RUNNING.")
    assert progress.flows["sums"].error is None


def test_what_our_source_says_is_the_reason_also_when_spark_gives_the_flow_up() -> None:
    progress = Progress()
    progress.on_message(
        "Flow 'sums' has FAILED.\nError: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when"
        " Python streaming data source perform initialOffset: Traceback (most recent call last):\n"
        '  File "stream.py", line 7, in initialOffset\n'
        "dmq.spark.failures.SparkSourceError: topic 'orders' does not exist. Create it.\n"
    )
    assert progress.flows["sums"].error == "topic 'orders' does not exist. Create it."
    progress.on_message("Flow 'sums' is RUNNING.")
    progress.on_message("Flow 'sums' has COMPLETED.")
    progress.on_message("Flow 'sums' has FAILED more than 5 times and will not be restarted.")
    assert progress.flows["sums"].error == "topic 'orders' does not exist. Create it."


def test_reports_count_rows_and_lag() -> None:
    progress = Progress()
    progress.on_query(REPORT)
    flow = progress.on_query(REPORT | {"batchId": 4, "numInputRows": 0})
    assert flow is not None
    assert (flow.batch, flow.rows, flow.rows_per_s, flow.lag) == (4, 1200, 600.0, 12)
    assert progress.rows == 1200


def test_the_lag_of_other_sources_is_not_known() -> None:
    assert lag_of({"endOffset": {"logOffset": 3}, "latestOffset": {"logOffset": 3}}) is None
    assert lag_of({"endOffset": '{"t": {"0": 4}}', "latestOffset": '{"t": {"0": 9}}'}) == 5
    assert lag_of({"endOffset": None, "latestOffset": "-"}) is None
