"""A spark-defaults.conf, read as spark-submit reads it."""

from hypothesis import given
from hypothesis import strategies as st

from airflow_flinklike.api.properties_file import parse_properties

PROPERTIES = r"""
# a comment
! another one
spark.sql.shuffle.partitions   8
spark.a=1
spark.b = two words
spark.c:3
   spark.d \
      continued
spark.e	tab
spark.empty
spark.eq a=b
spark.path C:\\dir
spark.unicode caf\u00e9
log4j.rootLogger INFO
spark.a=last wins
"""


def test_a_properties_file_as_spark_reads_it() -> None:
    found, others = parse_properties(PROPERTIES)
    assert found == {
        "spark.sql.shuffle.partitions": "8",
        "spark.a": "last wins",
        "spark.b": "two words",
        "spark.c": "3",
        "spark.d": "continued",
        "spark.e": "tab",
        "spark.empty": "",
        "spark.eq": "a=b",
        "spark.path": "C:\\dir",
        "spark.unicode": "café",
    }
    assert others == ["log4j.rootLogger"]


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    found, others = parse_properties(text)
    assert all(key.startswith("spark.") for key in found)
    assert not any(key.startswith("spark.") for key in others)
