"""Corruption primitives pixel by pixel, for one image or one channel: the plain versions of `fedlib.data.corruptions`."""

import math

import numpy as np
from scipy import ndimage


def glass_pass(pixels, shifts):
    """One pass over pixels [C, H, W] in the published scan order, from the bottom right; shifts [2, H - 2, W - 2]: right, down."""
    pixels = pixels.copy()
    _, height, width = pixels.shape
    for row in range(height - 1, 1, -1):
        for column in range(width - 1, 1, -1):
            right, down = shifts[:, row - 2, column - 2]
            pixels[:, row, column] = pixels[:, row + down, column + right]
    return pixels


def directional_blur(pixels, radius, sigma, angle):
    """pixels uint8 [C, H, W]; angle in degrees."""
    _, height, width = pixels.shape
    weights = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(2 * math.ceil(radius) + 1)]
    down = [math.ceil(i * math.sin(math.radians(angle)) - 0.5) for i in range(len(weights))]
    right = [math.ceil(i * math.cos(math.radians(angle)) - 0.5) for i in range(len(weights))]
    result = np.empty_like(pixels)
    for row in range(height):
        for column in range(width):
            value = 0
            for i, weight in enumerate(weights):
                source_row = min(max(row + down[i], 0), height - 1)
                source_column = min(max(column + right[i], 0), width - 1)
                value = value + weight * pixels[:, source_row, source_column]
            result[:, row, column] = np.floor(value / sum(weights) + 0.5)
    return result


def centre_zoom(x, zoom):
    """x [C, H, W]: crop the centre, enlarge it with SciPy, cut the centre out of that."""
    height, width = x.shape[1:]
    kept_rows, kept_columns = math.ceil(height / zoom), math.ceil(width / zoom)
    top, left = (height - kept_rows) // 2, (width - kept_columns) // 2
    enlarged = ndimage.zoom(x[:, top : top + kept_rows, left : left + kept_columns], (1, zoom, zoom), order=1)
    top, left = (enlarged.shape[1] - height) // 2, (enlarged.shape[2] - width) // 2
    return enlarged[:, top : top + height, left : left + width]


def plasma(noise, decay):
    """noise [side, side] in -1..1, one value per point of the torus."""
    side = len(noise)
    heights = np.zeros((side, side))
    step, amplitude = side, 100.0
    while step >= 2:
        half = step // 2
        diamonds = [(half, half, [(-half, -half), (-half, half), (half, -half), (half, half)])]
        crosses = [(0, half), (half, 0)]
        diamonds += [(row, column, [(-half, 0), (half, 0), (0, -half), (0, half)]) for row, column in crosses]
        for first_row, first_column, neighbours in diamonds:
            for row in range(first_row, side, step):
                for column in range(first_column, side, step):
                    around = [heights[(row + i) % side, (column + j) % side] for i, j in neighbours]
                    heights[row, column] = sum(around) / 4 + amplitude * (amplitude * noise[row, column])
        step, amplitude = half, amplitude / decay
    heights -= heights.min()
    return heights / heights.max()


def canny(pixels, low, high):
    """OpenCV's edge detector (L1 magnitude) on uint8 [H, W]."""
    height, width = pixels.shape

    def pixel(row, column):
        return int(pixels[min(max(row, 0), height - 1), min(max(column, 0), width - 1)])

    across, along = np.zeros((height, width), int), np.zeros((height, width), int)
    for row in range(height):
        for column in range(width):
            for offset, weight in ((-1, 1), (0, 2), (1, 1)):
                across[row, column] += weight * (pixel(row + offset, column + 1) - pixel(row + offset, column - 1))
                along[row, column] += weight * (pixel(row + 1, column + offset) - pixel(row - 1, column + offset))
    magnitude = np.pad(abs(across) + abs(along), 1)

    edges, candidates = np.zeros((height, width), bool), set()
    for row in range(height):
        for column in range(width):
            here, x, y = magnitude[row + 1, column + 1], abs(across[row, column]), abs(along[row, column])
            window = magnitude[row : row + 3, column : column + 3]
            if here <= low:
                continue
            if y < x * math.tan(math.pi / 8):
                largest = here > window[1, 0] and here >= window[1, 2]
            elif y > x * math.tan(3 * math.pi / 8):
                largest = here > window[0, 1] and here >= window[2, 1]
            elif across[row, column] * along[row, column] > 0:
                largest = here > window[0, 0] and here > window[2, 2]
            else:
                largest = here > window[0, 2] and here > window[2, 0]
            if largest:
                candidates.add((row, column))

    pending = [point for point in candidates if magnitude[point[0] + 1, point[1] + 1] > high]
    while pending:
        row, column = pending.pop()
        if (row, column) in candidates:
            candidates.discard((row, column))
            edges[row, column] = True
            pending += [(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    return edges


def equalize(pixels):
    """OpenCV's histogram equalisation of uint8 [H, W]."""
    values = sorted(pixels.ravel().tolist())
    darkest = values.count(values[0])
    if darkest == len(values):
        return pixels.copy()
    table = {v: round(255 * (sum(w <= v for w in values) - darkest) / (len(values) - darkest)) for v in set(values)}
    return np.array([[table[v] for v in row] for row in pixels.tolist()], np.uint8)


def warp(x, matrix, mirror):
    """Bilinear x [C, H, W] at ``matrix`` (row, column) [H, W, 2]; ``mirror`` folds an index back into the image."""
    result = np.empty_like(x)
    _, height, width = x.shape
    for row in range(height):
        for column in range(width):
            source_row, source_column = matrix[row, column]
            r, c = math.floor(source_row), math.floor(source_column)
            value = 0
            for i, row_weight in ((r, r + 1 - source_row), (r + 1, source_row - r)):
                for j, column_weight in ((c, c + 1 - source_column), (c + 1, source_column - c)):
                    value = value + row_weight * column_weight * x[:, mirror(i, height), mirror(j, width)]
            result[:, row, column] = value
    return result


def mirror_without_edge(index, size):
    index %= 2 * size - 2
    return min(index, 2 * size - 2 - index)


def mirror_with_edge(index, size):
    index %= 2 * size
    return min(index, 2 * size - 1 - index)
