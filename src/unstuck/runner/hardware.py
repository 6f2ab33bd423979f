"""What a core and a GPU are taken to do, where costs are computed. The core was measured here, the GPU never was."""

#: Multiply-adds a second that one thread of a current CPU core sustains on these models.
RATE = 2.5e10
OVERHEAD = 4e-3  # seconds a step that no multiplication accounts for

GPU = "NVIDIA A100"
#: Peak operations a second of its data sheet, by `train.matmul`: float32 products are computed in float32, or, where
#: that is allowed, in TF32.
GPU_PEAK = {"highest": 19.5e12, "high": 156e12, "medium": 312e12}
GPU_SHARE = 0.3  # of the peak, that models this small are taken to reach
GPU_STEP = 3e-3  # least seconds of a step: some 400 kernels to be launched


def assumptions() -> dict[str, object]:
    """What computed hours rest on; runs have the default `train.matmul`."""
    peak = GPU_PEAK["highest"]
    return {
        "gpu": GPU,
        "gpu_flops_per_second": peak,
        "gpu_share_of_peak": GPU_SHARE,
        "gpu_least_seconds_a_step": GPU_STEP,
        "cpu_multiplications_per_second": RATE,
        "cpu_seconds_a_step": OVERHEAD,
        "in words": (
            f"Operations of a step: 6 x batch x multiply-adds of a forward pass. A core: {RATE:.2g} multiply-adds a "
            f"second and {1e3 * OVERHEAD:g} ms a step, measured. GPU: {GPU}, {100 * GPU_SHARE:g}% of its "
            f"{peak / 1e12:g} TFLOP/s (float32, data sheet; TF32 is off unless train.matmul allows it), and at least "
            f"{1e3 * GPU_STEP:g} ms a step for launching kernels; runs one after another. Steps by the plateau laws, "
            "at most train.max_steps. The GPU's hours are computed: no run of this table was made on a GPU."
        ),
    }
