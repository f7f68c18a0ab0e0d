"""What tpch_revenue.py is made of: data, the pipeline, a script and the report."""
