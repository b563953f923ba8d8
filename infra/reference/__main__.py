"""``python -m infra.reference`` writes the generated parts of docs/reference/."""

from infra.reference import main

main()
