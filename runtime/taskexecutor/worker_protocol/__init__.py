"""The conventions between slot processes, the Spark host and Spark's Python workers. Standard library only, besides
pyspark.
"""
