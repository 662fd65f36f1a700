"""Spark reads and writes topics through `format("dmq")`: a Python data source, no jar."""
