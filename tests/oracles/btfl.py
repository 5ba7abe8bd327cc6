"""BTFL sample by sample, as the paper's algorithm reads; NumPy and SciPy only, float64."""

import math

import numpy as np
from scipy import integrate, stats


def entropy(logits):
    exponentials = np.exp(logits - logits.max())
    probabilities = exponentials / exponentials.sum()
    return -sum(p * math.log(p) for p in probabilities if p > 0)


def log_softmax(logits):
    shifted = logits - logits.max()
    return shifted - math.log(np.exp(shifted).sum())


def log_likelihood(feature, table, smoothing):
    levels = len(table)
    total = 0.0
    for j, value in enumerate(feature):
        code = round(math.tanh(value) * (levels - 1))
        total += math.log(max((1 - smoothing * levels) * table[code, j] + smoothing, 1e-6))
    return total


def density_on_grid(alpha, beta):
    points = np.array([0.01 + i * 0.98 / 99 for i in range(100)])
    return points, stats.beta.pdf(points, alpha, beta)


def weight_trapezoid(points, density, lam):
    return np.trapezoid(density * points / (points + (1 - points) * lam), points)


def weight_exact(alpha, beta, lam):
    value, _ = integrate.quad(
        lambda m: stats.beta.pdf(m, alpha, beta) * m / (m + (1 - m) * lam), 0, 1, epsabs=1e-11, epsrel=1e-11, limit=200
    )
    return value


def interpolate(
    features, global_logits, personal_logits, personal_table, global_table, *, personal_entropy, global_entropy,
    reference_entropy=4.605170185988092, cap=16, kb=4.0, smoothing=0.2, batch_size=32, integral="trapezoid", mixture="log",
    squash=True, clip=50.0, cap_rule="restart",
):  # fmt: skip
    """Returns weight [N], scores [N, C], prior [N, 2], lambda [N], events [N, 2] (external, internal)."""
    alpha, beta = 1.0, 1.0
    weights, scores, priors, ratios, events = [], [], [], [], []
    for start in range(0, len(features), batch_size):
        if integral == "trapezoid":
            points, density = density_on_grid(alpha, beta)
        n_external = n_internal = 0
        for i in range(start, min(start + batch_size, len(features))):
            local = log_likelihood(features[i], personal_table, smoothing)
            others = log_likelihood(features[i], global_table, smoothing)
            h_l, h_g = entropy(personal_logits[i]), entropy(global_logits[i])
            external = local < others and h_g < global_entropy and h_l > personal_entropy
            internal = local > others and h_l < personal_entropy and h_g > global_entropy
            n_external += external
            n_internal += internal

            power_l = math.exp((h_l - personal_entropy) / personal_entropy)
            power_g = math.exp((h_g - reference_entropy) / reference_entropy)
            raw = math.exp((power_l * local - power_g * others) / len(features[i]))
            if not squash:
                lam = min(max(raw, 1 / clip), clip)
            elif raw > 1:
                lam = 1 + kb * math.tanh(raw - 1)
            elif raw < 1:
                lam = 1 / (1 + kb * math.tanh(1 / raw - 1)) if raw > 0 else 1 / (1 + kb)
            else:
                lam = 1.0
            w = weight_trapezoid(points, density, lam) if integral == "trapezoid" else weight_exact(alpha, beta, lam)

            log_g, log_l = log_softmax(global_logits[i]), log_softmax(personal_logits[i])
            if mixture == "log":
                scores.append(w * log_g + (1 - w) * log_l)
            else:
                scores.append(np.log(w * np.exp(log_g) + (1 - w) * np.exp(log_l)))
            weights.append(w)
            priors.append((alpha, beta))
            ratios.append(lam)
            events.append((external, internal))
        alpha += n_external
        beta += n_internal
        if alpha + beta > cap and cap_rule == "restart":
            alpha, beta = 1 + cap / 10 * alpha / (alpha + beta), 1 + cap / 10 * beta / (alpha + beta)
        elif alpha + beta > cap:
            alpha, beta = cap * alpha / (alpha + beta), cap * beta / (alpha + beta)
    return np.array(weights), np.array(scores), np.array(priors), np.array(ratios), np.array(events)
