"""What `headrace smoke` looks at, in rooms by what they check; `every` has them in order."""
