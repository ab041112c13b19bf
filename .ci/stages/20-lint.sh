make --no-print-directory lint
