"""What a driver JVM is started with, whoever starts it: its Java, its class archive, its command line."""
