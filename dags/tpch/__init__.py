"""The modules of tpch_revenue.py: data, the pipeline, a script and the report."""
