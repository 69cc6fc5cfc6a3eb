"""bfloat16 as the plugin teaches it to Triton's interpreter, against torch."""

import numpy as np
import torch

from attnmatrix_vllm.bfloat16 import rounded, widened


def test_it_rounds_and_widens_as_torch_does():
    random = np.random.default_rng(1)
    numbers = random.standard_normal(10_000).astype(np.float32) * np.float32(10.0) ** random.integers(-30, 30, 10_000)
    ties = (np.arange(1 << 12, dtype=np.uint32) << 15 | 0x3F808000).view(np.float32)
    numbers = np.concatenate([numbers, ties, np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38], np.float32)])
    wanted = torch.from_numpy(numbers).bfloat16()
    found = torch.from_numpy(rounded(numbers).view(np.int16)).view(torch.bfloat16)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(
        torch.from_numpy(widened(rounded(numbers))), wanted.float(), rtol=0, atol=0, equal_nan=True
    )
