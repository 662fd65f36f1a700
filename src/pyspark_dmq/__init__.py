"""The package that Spark looks for when a job says `format("dmq")`."""
