"""kafka-python's message classes by name; its import uses a call that Python 3.11 deprecates."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl  # noqa: F401 (each import registers its messages)
    from kafka.protocol.api_message import ApiMessage

MESSAGES: dict[str, type] = {cls.__name__: cls for cls in ApiMessage.__subclasses__()}
