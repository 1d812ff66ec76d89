"""ListOps with dependency depth by its description: trees of tuples, drawn and rejected. No code of the package.

A tree is a digit or (operator, argument, ...). Depths count a digit as 1, as the authors do.
"""

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")


def parse(text):
    """The tree of well-formed text."""
    words = iter(text.split())

    def read(word):
        if word.isdigit():
            return int(word)
        tree = [word]
        while (following := next(words)) != "]":
            tree.append(read(following))
        return tuple(tree)

    return read(next(words))


def spell(tree):
    if isinstance(tree, int):
        return str(tree)
    return " ".join([tree[0], *map(spell, tree[1:]), "]"])


def evaluate(tree):
    """(value, dependency depth)"""
    if isinstance(tree, int):
        return tree, 1
    results = [evaluate(argument) for argument in tree[1:]]
    # positions from the least value to the greatest, equal values in their order
    ranked = sorted(range(len(results)), key=lambda i: (results[i][0], i))
    half = len(ranked) // 2
    if tree[0] == "[MED":
        middle = [ranked[half]] if len(ranked) % 2 else ranked[half - 1 : half + 1]
        return sum(results[i][0] for i in middle) // len(middle), 1 + max(results[i][1] for i in middle)
    if tree[0] == "[SM":
        return sum(value for value, _ in results) % 10, 1 + max(depth for _, depth in results)
    wanted = results[ranked[0]][0] if tree[0] == "[MIN" else results[ranked[-1]][0]
    return wanted, 1 + next(depth for value, depth in results if value == wanted)


def levels(tree):
    return 1 if isinstance(tree, int) else 1 + max(map(levels, tree[1:]))


def size(tree):
    """The authors' length: 3 for an operator, 1 for a digit."""
    return 1 if isinstance(tree, int) else 3 + sum(map(size, tree[1:]))


def subtree(most, rng, value_probability):
    if most == 1 or rng.random() < value_probability:
        return rng.randrange(10)
    arguments = [subtree(most - 1, rng, value_probability) for _ in range(rng.randint(2, 5))]
    return (rng.choice(OPERATORS), *arguments)


def sample(fewest, most, rng, value_probability=0.7):
    """A tree of `fewest` to `most` levels, before any rejection."""
    tree = subtree(most, rng, value_probability)
    while levels(tree) < fewest:
        arguments = [subtree(most - 1, rng, value_probability) for _ in range(rng.randint(2, 4))]
        arguments.insert(rng.randrange(len(arguments)), tree)
        tree = (rng.choice(OPERATORS), *arguments)
    return tree
