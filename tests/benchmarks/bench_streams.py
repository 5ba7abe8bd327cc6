"""Times whole-stream BTFL and T3A against their per-sample oracles: python -m tests.benchmarks.bench_streams

1,000 samples, 64 features, 10 classes, float64, one thread. Oracle and kernel alternate; the fastest run of each counts, so that
other load on the machine matters least.
"""

import time

import torch

from fedlib.adapt import btfl, t3a
from tests.oracles import btfl as btfl_oracle
from tests.oracles import t3a as t3a_oracle

SAMPLES, FEATURES, CLASSES = 1000, 64, 10
ENTROPIES = {"personal_entropy": 0.8, "global_entropy": 1.5}


def compare(name, oracle, kernel, oracle_runs=3, kernel_runs=20):
    """Print the fastest times of both in milliseconds, their ratio and the largest difference of the results."""
    difference = (torch.as_tensor(oracle()) - kernel()).abs().max().item()
    slow, fast = [], []
    for _ in range(oracle_runs):
        slow.append(timed(oracle))
        fast += [timed(kernel) for _ in range(kernel_runs // oracle_runs)]
    slow, fast = min(slow), min(fast)
    print(f"{name:34s} oracle {slow * 1e3:9.1f} ms   kernel {fast * 1e3:7.2f} ms   ratio {slow / fast:7.0f}   difference {difference:.0e}")


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    features = randn(SAMPLES, FEATURES).relu()
    tables = btfl.frequency_table(randn(300, FEATURES).relu()), btfl.frequency_table(1.2 * randn(300, FEATURES).relu())
    inputs = (features, 2 * randn(SAMPLES, CLASSES), 3 * randn(SAMPLES, CLASSES), *tables)
    arrays = [value.numpy() for value in inputs]
    for batch_size in (1, 32):
        compare(
            f"BTFL, batch {batch_size}",
            lambda b=batch_size: btfl_oracle.interpolate(*arrays, batch_size=b, **ENTROPIES)[0],
            lambda b=batch_size: btfl.interpolate(*inputs, batch_size=b, **ENTROPIES)[0],
        )
    weight = randn(CLASSES, FEATURES)
    for filter_k in (50, None):
        compare(
            f"T3A, one at a time, filter {filter_k}",
            lambda k=filter_k: t3a_oracle.predict(features.numpy(), weight.numpy(), filter_k=k),
            lambda k=filter_k: t3a.predict(features, weight, filter_k=k),
            oracle_runs=1,
        )


if __name__ == "__main__":
    main()
