make --no-print-directory types
