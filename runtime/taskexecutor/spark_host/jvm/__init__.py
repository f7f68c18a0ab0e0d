"""Java classes of our own inside the driver JVM: sources, compiled there once, defined beside Spark's own classes.

To add a class: write `Name.java` here, list it in `loader.SOURCES` after what it extends, and list in `names.txt` every
private member, and every method that it overrides, of Spark, Hadoop or py4j. Then `jvm.<package>.Name` is there.
"""
