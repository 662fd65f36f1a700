"""Data pipelines on Spark: projects and their runs, landing topics as tables, audits.

What `dmq pipeline …` does, without its words for people: those are in `dmq.cli.pipeline`.

| module | what it has |
|---|---|
| `java`, `sessions` | a Java, and Spark sessions on it: classic ones, and Connect ones for projects |
| `projects`, `templates` | Spark Declarative Pipelines projects: found, read, written from templates |
| `schema_text`, `definitions` | schemas as text, checked; what written projects build on |
| `progress`, `runs`, `runner` | what flows have done; the run's record on disk; the run itself |
| `values`, `json_values` | record values of a declared or inferred schema, and why one does not parse |
| `dead_letters` | records that don't parse, as records of the dead-letter topic |
| `landing`, `tables`, `compacting` | a topic as a table of Parquet files |
| `audit`, `findings` | counts, gaps, duplicates, order and checksums, and what is wrong in them |
| `gaps`, `log_batches` | why offsets hold no record, told by the batches that are in the log |
| `audit_against` | a topic against another cluster's, or against its table |

Every failure that a person can mend is a `PipelineError`. pyspark is imported only here and in the
rest of `dmq.spark`, and in most modules here only inside of functions.
"""
