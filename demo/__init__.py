"""`make demo`: three brokers, a shop's events, a pipeline on Spark, a table and a picture."""
