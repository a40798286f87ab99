"""multiprocessing.Pool."""

from ray.util.multiprocessing import Pool


def square(x):
    return x * x


with Pool(2) as pool:
    print(pool.map(square, range(5)))
    print(pool.apply(square, (7,)), pool.starmap(pow, [(2, 3), (3, 2)]))
    print(sorted(pool.imap_unordered(square, [1, 2])))
    print(pool.apply_async(square, (4,)).get(timeout=30))
# > [0, 1, 4, 9, 16]
# > 49 [8, 9]
# > [1, 4]
# > 16
