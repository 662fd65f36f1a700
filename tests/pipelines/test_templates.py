"""Projects as `dmq pipeline init` writes them; that they run is shown in `test_projects`."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dmq.spark.pipelines import projects, templates
from dmq.spark.pipelines.failures import PipelineError

WORDS = templates.Words(
    topic="orders",
    bootstrap="127.0.0.1:9092",
    schema="order_id STRING, price STRUCT<cents: BIGINT, unit: STRING>, amount DOUBLE",
    with_="payments",
    table="some/where",
    key="order_id",
)


@pytest.mark.parametrize("name", templates.TEMPLATES)
def test_a_project_is_whole(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "my-sales"
    made = templates.write(folder, templates.TEMPLATES[name], WORDS)
    assert {path.relative_to(folder).as_posix() for path in made} == {
        ".gitignore",
        "README.md",
        "spark-pipeline.yml",
        "transformations/my_sales.py",
    }
    for path in made:
        assert "{{" not in path.read_text()
    ast.parse((folder / "transformations" / "my_sales.py").read_text())
    document = yaml.safe_load((folder / "spark-pipeline.yml").read_text())
    assert document["storage"] == (folder / "storage").as_uri()
    assert projects.find(folder / "transformations").name == "my-sales"


def test_the_sum_is_of_the_first_number_that_is_no_id(tmp_path: Path) -> None:
    templates.write(tmp_path / "sums", templates.TEMPLATES["aggregate"], WORDS)
    text = (tmp_path / "sums" / "transformations" / "sums.py").read_text()
    assert 'AMOUNT = F.col("parsed")["amount"]' in text


@pytest.mark.parametrize("name", templates.TEMPLATES)
def test_fields_may_have_any_sign_in_their_names(name: str, tmp_path: Path) -> None:
    odd = '`a "b\\` BIGINT, `OP``` STRING'
    words = replace(WORDS, schema=odd, on='a "b\\', table='some "where\\', key='a "b\\')
    templates.write(tmp_path / "odd", templates.TEMPLATES[name], words)
    text = (tmp_path / "odd" / "transformations" / "odd.py").read_text()
    texts = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert (odd in texts) != (name == "backfill")


def test_fields_that_a_table_has_of_its_own_are_refused(tmp_path: Path) -> None:
    for name, taken in (("table", "_day"), ("cdc", "_Is_Gone"), ("cdc", "_key")):
        words = replace(WORDS, schema=f"id STRING, {taken} STRING")
        with pytest.raises(PipelineError, match=f"fields called {taken}"):
            templates.write(tmp_path / "sales", templates.TEMPLATES[name], words)
    twins = replace(WORDS, with_schema="order_id STRING, Order_ID STRING")
    with pytest.raises(PipelineError, match="order_id and Order_ID"):
        templates.write(tmp_path / "sales", templates.TEMPLATES["join"], twins)
    assert not (tmp_path / "sales").exists()


def test_topics_that_cant_be_joined_are_refused(tmp_path: Path) -> None:
    for words, why in (
        (replace(WORDS, with_="orders"), "joined with itself"),
        (replace(WORDS, with_schema="paid DOUBLE"), "payments have no field order_id"),
        (replace(WORDS, on="paid", with_schema="paid DOUBLE"), "orders have no field paid"),
    ):
        with pytest.raises(PipelineError, match=why):
            templates.write(tmp_path / "pairs", templates.TEMPLATES["join"], words)


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(PipelineError, match="is there already"):
        templates.write(tmp_path / "there", templates.TEMPLATES["table"], WORDS)


def test_what_a_template_needs_is_asked_for(tmp_path: Path) -> None:
    words = templates.Words(topic="orders", bootstrap="127.0.0.1:9092")
    with pytest.raises(PipelineError, match="join needs --with"):
        templates.write(tmp_path / "pairs", templates.TEMPLATES["join"], words)
    with pytest.raises(PipelineError, match="no name for a project"):
        templates.write(tmp_path / "9 lives", templates.TEMPLATES["table"], words)


def test_a_folder_without_a_project_says_so(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no pipeline project"):
        projects.find(tmp_path)
    (tmp_path / "spark-pipeline.yml").write_text("name: x")
    with pytest.raises(PipelineError, match="does not describe a pipeline"):
        projects.find(tmp_path)
