"""Simple arithmetic as it is described: draw, look, throw away. The slow twin of `simple_arithmetic/distribution.py`.

Expressions are nested tuples (left, operator, right) or digits. Depths are operations on the longest chain.
"""

from itertools import product


def tree(levels, p, rng):
    if levels == 0 or rng.random() > p:
        return rng.randrange(10)
    left, right = tree(levels - 1, p, rng), tree(levels - 1, p, rng)
    return left, rng.choice("+*"), right


def depth(expression):
    return 0 if isinstance(expression, int) else 1 + max(depth(expression[0]), depth(expression[2]))


def text(expression):
    return f"({''.join(map(text, expression))})" if isinstance(expression, tuple) else str(expression)


def value(expression):
    if isinstance(expression, int):
        return expression
    left, operator, right = expression
    return (value(left) + value(right) if operator == "+" else value(left) * value(right)) % 10


def shapes(levels, p):
    """{shape: probability} of tree(levels); a shape is None for a digit, or a pair of shapes."""
    if levels == 0:
        return {None: 1.0}
    below = shapes(levels - 1, p)
    found = {(a, b): p * below[a] * below[b] for a, b in product(below, repeat=2)}
    return {None: 1 - p, **found}


def shape_depth(shape):
    return 0 if shape is None else 1 + max(map(shape_depth, shape))


def shape_size(shape):
    return 0 if shape is None else 1 + sum(map(shape_size, shape))


def grown_shapes(process):
    """{shape: probability} of whole expressions, before long ones are thrown away."""
    added = shapes(process.max_depth - 1, process.branch_probability)
    found, open_ = {}, shapes(process.max_depth, process.branch_probability)
    while open_:
        further = {}
        for shape, weight in open_.items():
            if shape_depth(shape) >= process.min_depth:
                found[shape] = found.get(shape, 0.0) + weight
                continue
            for left, other in added.items():
                further[left, shape] = further.get((left, shape), 0.0) + weight * other
        open_ = further
    return found


def shape_of(written):
    """The shape of a text without spaces."""
    stack = []
    for character in written:
        if character.isdigit():
            stack.append(None)
        elif character == ")":
            right, left = stack.pop(), stack.pop()
            stack.append((left, right))
    (shape,) = stack
    return shape
