"""The pytest plugin: fixtures that start nothing until they are asked for."""
