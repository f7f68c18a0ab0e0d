"""What type checkers must refuse in calls of operators and sensors, with the code that mypy gives it. Never run."""

from airflow_flinklike.operators.cancel import FlinklikeCancelOperator
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.job import FlinklikeJobSensor

FlinklikeSubmitOperator("script")  # expect: call-arg
FlinklikeSubmitOperator(task_id="a", pipeline=5)  # expect: arg-type
FlinklikeSubmitOperator(task_id="a", application="etl.py", conf=["a=b"])  # expect: arg-type
FlinklikeSubmitOperator(task_id="a", application="etl.py", py_files=5)  # expect: arg-type
FlinklikeSubmitOperator(task_id="a", application="etl.py", env_vars=["A=b"])  # expect: arg-type
FlinklikeSubmitOperator(task_id="a", application="etl.py", secrets=5)  # expect: arg-type
FlinklikeSubmitOperator(task_id="a", application="etl.py", restart_strategy=3)  # expect: arg-type
FlinklikeCancelOperator(task_id="a", job_id=5)  # expect: arg-type
FlinklikeJobSensor(task_id="a", job_id=5)  # expect: arg-type
