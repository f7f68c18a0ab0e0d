"""What slot processes, the Spark host and Spark's Python workers agree on. Standard library only, besides pyspark."""
