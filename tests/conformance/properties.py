"""What must hold of outputs whose expected values cannot be met, test by test: expected.json names one of CHECKS.

A check gets the inputs of the test as arrays (those of its static way; None: absent), what the test expects and what came out, both lists of
arrays, and gives None or what is wrong. Type and shape are those that are expected, for all of them.
"""

import numpy as np

SIGMAS = 5  # that a count may be off its mean; the generators are seeded, so a test that passes once always does


def count_is_likely(count, probabilities, what):
    """`count` events of independent ones with these probabilities."""
    mean, deviation = probabilities.sum(), np.sqrt((probabilities * (1 - probabilities)).sum())
    if abs(count - mean) > SIGMAS * deviation:
        return f"{count} of {probabilities.size} {what}, {mean:.1f} are likely"
    return None


def draws(probabilities, got):
    values = got[0].astype(np.float64)
    if not np.isin(values, (0, 1)).all():
        return "a value is neither 0 nor 1"
    if (values[probabilities <= 0] != 0).any() or (values[probabilities >= 1] != 1).any():
        return "a draw of probability 0 or 1 is the other value"
    return count_is_likely(values.sum(), probabilities, "draws are 1")


def bernoulli(inputs, _want, got):
    return draws(inputs[0].astype(np.float64), got)


def bernoulli_expanded(inputs, _want, got):
    """ONNX's function body gives 1 where the uniform number is above the probability."""
    return draws(1 - inputs[0].astype(np.float64), got)


def dropout(inputs, _want, got):
    """Training: each value is dropped with the probability of the ratio, or multiplied by 1/(1 - ratio)."""
    x, ratio = inputs[0].astype(np.float64), float(inputs[1])
    values, scaled = got[0].astype(np.float64), x / (1 - ratio)
    kept = np.isclose(values, scaled, rtol=1e-5, atol=0)
    if not (kept | (values == 0)).all():
        return "a value is neither dropped nor scaled"
    if len(got) > 1 and (got[1] != kept)[x != 0].any():
        return "the mask is not that of the values"
    return count_is_likely((~kept).sum(), np.full(x.size, ratio), "values are dropped")


def inverse_dft(inputs, _want, got):
    """Beside float64 on axis 1; the expected values have the rounding of another algorithm where zeros are right."""
    x = inputs[0].astype(np.float64)
    exact = np.fft.ifft(x[..., 0] + 1j * x[..., 1], axis=1)
    exact = np.stack([exact.real, exact.imag], axis=-1)
    worst = np.abs(got[0] - exact).max() / np.abs(exact).max()
    return None if worst <= 1e-6 else f"{worst:.2g} of the largest value off float64"


def attention_steps(inputs, got, causal):
    """Beside float64, in steps of float16; the expected values are 1.42 off."""
    q, k, v = (x.astype(np.float64) for x in inputs[:3])
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    exact = weights / weights.sum(axis=-1, keepdims=True) @ v
    steps = (np.abs(got[0] - exact) / np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)).max()
    return None if steps <= 1.5 else f"{steps:.3g} steps of float16 off float64"


def attention_f16(inputs, _want, got):
    return attention_steps(inputs, got, causal=False)


def causal_attention_f16(inputs, _want, got):
    return attention_steps(inputs, got, causal=True)


CHECKS = {check.__name__: check
          for check in (bernoulli, bernoulli_expanded, dropout, inverse_dft, attention_f16, causal_attention_f16)}
