"""Gradient-masked averaging coordinate by coordinate, signs counted as fractions."""

from fractions import Fraction


def masked_average(server, clients, threshold, server_lr, weights, zero_sign=-1):
    result = []
    for d, start in enumerate(server):
        updates = [client[d] - start for client in clients]
        agreement = abs(sum(Fraction(1 if update > 0 else -1 if update < 0 else zero_sign) for update in updates)) / len(clients)
        mask = 1 if agreement >= Fraction(str(threshold)) else float(agreement)
        result.append(start + server_lr * mask * sum(w * u for w, u in zip(weights, updates, strict=True)))
    return result
