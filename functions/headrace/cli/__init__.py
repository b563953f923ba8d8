"""The command `headrace`: a module for each noun, loaded when it is asked for."""
