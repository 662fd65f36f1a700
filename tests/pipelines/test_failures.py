"""What people are told of an error of Spark: one sentence, and the right one."""

from dmq.spark.pipelines.failures import first_line

_TRACE = """[STREAM_FAILED] Query [id = 1] terminated with exception: Failed when Python … Traceback:
  File "worker.py", line 1, in main
dmq.errors.KafkaError: UNKNOWN_TOPIC_OR_PARTITION: orders
The above exception was the direct cause of the following exception:
dmq.spark.failures.SparkSourceError: topic 'orders' does not exist. Create it.
 SQLSTATE: 38000
    at org.apache.spark.sql.Something(Something.scala:1)
"""


def test_the_sentence_of_our_own_source_is_found_below_sparks() -> None:
    assert first_line(RuntimeError(_TRACE)) == "topic 'orders' does not exist. Create it."


def test_of_other_errors_the_first_line_is_told() -> None:
    assert (
        first_line(RuntimeError("\n[PARSE] no such column\n at java")) == "[PARSE] no such column"
    )
    assert first_line(RuntimeError()) == "RuntimeError"


def test_an_executor_that_lacks_dmq_is_told_of_though_it_has_no_error_of_ours() -> None:
    said = "the Python of a Spark executor (python on host) has no module 'dmq'; install it there"
    trace = (
        f"[JOB] aborted\nModuleNotFoundError: No module named 'dmq'\nModuleNotFoundError: {said}"
    )
    assert first_line(RuntimeError(trace)) == said
