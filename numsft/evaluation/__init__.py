"""Did the numbers get better? Benchmarks, number tasks and the metrics that answer it."""
