"""What type checkers must refuse, with the code that mypy gives it. Never run."""

import airflow_flinklike
from airflow_flinklike import AsyncFlinklikeClient, FlinklikeClient, Pipeline, TaskContext, function_job, script_job
from airflow_flinklike.client import new_job_id


def read(ctx: TaskContext) -> None:
    ctx.sparks.range(5)  # expect: attr-defined
    ctx.params["n"] = 3  # expect: index
    ctx.attempt_number = 2  # expect: misc
    ctx.report_progress("half")  # expect: arg-type
    ctx.output_path()  # expect: call-arg
    ctx.logger.inform("x")  # expect: attr-defined
    ctx.spark.rangee(5)  # expect: attr-defined


airflow_flinklike.Nothing()  # expect: attr-defined
Pipeline()  # expect: call-arg
Pipeline(1)  # expect: arg-type
Pipeline("p", param={})  # expect: call-arg
Pipeline("p", py_files=5)  # expect: arg-type
pipeline = Pipeline("p")
pipeline.source("a", 5)  # expect: arg-type
pipeline.source("a", read, paralelism=2)  # expect: call-arg
pipeline.source("a", read, parallelism="2")  # expect: arg-type
pipeline.map("a", read)  # expect: attr-defined
stream = pipeline.source("a", read)
pipeline.source("a", read, resources="4g")  # expect: arg-type
pipeline.source("a", read, "splits")  # expect: call-arg
stream.map("b", read, parallelism=2)  # expect: call-arg
stream.hash(1)  # expect: arg-type
stream.hash("a").map("b", read)  # expect: attr-defined
stream.apply("b", read, paralelism=2)  # expect: call-arg
stream.apply("b", read, parallelism="2")  # expect: arg-type
stream.sink("b", read, exclusive="yes")  # expect: arg-type
stream.gather().sink("b", read, "stream")  # expect: arg-type
stream.name = "other"  # expect: misc
pipeline.submit(address=8081)  # expect: arg-type

script_job("etl.py", conf=["a=b"])  # expect: arg-type
script_job("etl.py", py_file="a.py")  # expect: call-arg
script_job("etl.py", spark_conf={})  # expect: call-arg
script_job("etl.py", ["--day", "5"])  # expect: call-arg
function_job(read, execution_timeout="5 min")  # expect: arg-type
function_job(read, secret=["db"])  # expect: call-arg
function_job("module:function")  # expect: arg-type

client = FlinklikeClient("127.0.0.1:8081", None, retry=5)  # expect: call-arg
client.status("not an id")  # expect: arg-type


async def watch(client: AsyncFlinklikeClient) -> None:
    client.status(new_job_id())  # expect: unused-coroutine
