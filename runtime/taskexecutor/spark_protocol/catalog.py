"""The Spark conf of a catalog that stays in a warehouse, and that all jobs of a TaskManager share (D-046)."""

from __future__ import annotations

from collections.abc import Mapping

METASTORE_SERVICE = "spark.hadoop.hive.metastore.uris"
METASTORE_DIRECTORY = ".metastore"
"""The directory of Derby's database, in the warehouse."""
_CATALOG = "spark.sql.catalogImplementation"


def catalog_conf(warehouse: str, spark_conf: Mapping[str, str]) -> dict[str, str]:
    """Spark conf of a catalog that stays. A metastore service of the user's takes the place of Derby."""
    conf = {_CATALOG: "hive", "spark.sql.warehouse.dir": f"file:{warehouse}"}
    if METASTORE_SERVICE not in spark_conf:
        url = f"jdbc:derby:;databaseName={warehouse}/{METASTORE_DIRECTORY}/derby;create=true"
        conf["spark.hadoop.javax.jdo.option.ConnectionURL"] = url
    return conf
