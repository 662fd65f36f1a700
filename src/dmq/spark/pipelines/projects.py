"""A pipeline project on disk: a folder with `spark-pipeline.yml` and `transformations/`.

Owns where things are in it. What dmq keeps for itself is in `.dmq`: the record of the last run,
Spark's log, the catalog of the tables that runs on this machine make. Imports no Spark.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dmq.spark.pipelines.failures import PipelineError

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")


@dataclass(frozen=True, slots=True)
class Project:
    """A project that was found."""

    folder: Path
    spec: Path
    name: str
    storage: str

    @property
    def own(self) -> Path:
        """What dmq keeps beside the project's files."""
        return self.folder / ".dmq"

    @property
    def record(self) -> Path:
        """The record of the last run."""
        return self.own / "run.json"

    @property
    def log(self) -> Path:
        """What Spark's Java process says."""
        return self.own / "spark.log"

    @property
    def warehouse(self) -> Path:
        """Tables of runs whose driver is on this machine: a folder of Parquet files each."""
        return self.folder / "warehouse"

    def spark_conf(self) -> dict[str, str]:
        """A catalog that outlives the run: Spark's own default forgets its tables with the process."""
        catalog = self.own / "catalog"
        return {
            "spark.sql.warehouse.dir": self.warehouse.as_uri(),
            "spark.sql.catalogImplementation": "hive",
            # On a busy machine Spark gives up on its own workers after ten seconds; the next try may do.
            # A flow starts several; with Spark's 16 flows at once, two cores never get there.
            "spark.sql.pipelines.maxFlowRetryAttempts": "5",
            "spark.sql.pipelines.execution.maxConcurrentFlows": str(max(2, os.cpu_count() or 2)),
            "spark.hadoop.javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={catalog};create=true"
            ),
            "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={self.own / 'derby.log'}",
        }


def find(place: Path) -> Project:
    """The project in this folder or above it, or the one of this spec file."""
    spec = place if place.is_file() else _spec_above(place.resolve())
    return read(spec.resolve())


def _spec_above(folder: Path) -> Path:
    for each in (folder, *folder.parents):
        for name in SPEC_NAMES:
            if (each / name).is_file():
                return each / name
    raise PipelineError(
        f"There is no pipeline project in {folder} or above it",
        "Make one with `dmq pipeline init NAME`, or name its folder.",
        is_missing=True,
    )


def read(spec: Path) -> Project:
    """The project of a spec file. Raises PipelineError if its YAML is not a pipeline's."""
    try:
        document: Any = yaml.safe_load(spec.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise PipelineError(f"{spec} can't be read: {error}") from error
    if not isinstance(document, dict) or not {"name", "storage"} <= document.keys():
        raise PipelineError(
            f"{spec} does not describe a pipeline", "It needs a name, a storage and libraries."
        )
    return Project(spec.parent, spec, str(document["name"]), str(document["storage"]))
