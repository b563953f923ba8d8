"""What the console is made of; see console/README.md."""
