"""The drawings of docs/: concepts, architectures, and the figure of README.md."""

from collections.abc import Callable

from .readme_figure import steps_by_functions
from .sketch import Sketch, flow


def recurrent_depth() -> str:
    sketch = Sketch(680, 250, "A stack of different layers, and one block applied until a unit stops")
    sketch.words(150, 24, "fixed depth: L layers, L sets of weights")
    for number, label in enumerate(("layer 1", "layer 2", "layer 3", "layer L")):
        sketch.box(90, 190 - 48 * number, 120, 30, label)
        if number:
            sketch.arrow((150, 238 - 48 * number), (150, 222 - 48 * number))
    sketch.words(460, 24, "recurrent depth: one block, one set of weights")
    sketch.box(400, 110, 120, 60, "block")
    sketch.box(400, 200, 120, 30, "embeddings", "in")
    sketch.arrow((460, 200), (460, 172))
    sketch.arrow((520, 140), (570, 140), (570, 92), (460, 92), (460, 108))
    sketch.words(575, 120, "until the", "start", soft=True)
    sketch.words(575, 136, "unit stops", "start", soft=True)
    sketch.box(290, 125, 74, 30, "answer", "out")
    sketch.arrow((400, 140), (366, 140))
    return sketch.svg()


STEPS_OF = (("token 1", 2), ("token 2", 4), ("token 3", 5), ("token 4", 6))


def halting() -> str:
    sketch = Sketch(
        560, 230, "Tokens that halt at different steps: each is computed until it stops, then stays as it is"
    )
    for column in range(8):
        sketch.words(130 + 50 * column, 26, f"step {column + 1}", soft=True)
    for row, (token, steps) in enumerate(STEPS_OF):
        sketch.words(76, 58 + 42 * row, token, "end")
        for column in range(8):
            kind = "work" if column < steps else "off"
            label = "stops" if column == steps - 1 else ""
            sketch.box(108 + 50 * column, 38 + 42 * row, 44, 30, label, "gate" if label else kind)
    sketch.words(280, 220, "filled: computed; dashed: kept, and not computed", soft=True)
    return sketch.svg()


def compaction() -> str:
    sketch = Sketch(
        640, 250, "With masking all rows are computed at every step; with compaction only those that are left"
    )
    depths = (2, 3, 3, 6)
    for left, name in ((20, "masking: every row, every step"), (340, "compaction: rows that are left")):
        sketch.words(left + 140, 24, name)
        for column in range(6):
            alive = [row for row, depth in enumerate(depths) if column < depth]
            rows = range(4) if left == 20 else range(len(alive))
            for row in rows:
                useful = row in alive if left == 20 else True
                sketch.box(left + 46 * column, 44 + 42 * row, 40, 30, "", "work" if useful else "gate")
    sketch.words(160, 232, "24 row-steps; 10 of them are thrown away", soft=True)
    sketch.words(480, 232, "14 row-steps", soft=True)
    return sketch.svg()


def chunks_and_blocks() -> str:
    sketch = Sketch(660, 210, "Chunks that write a memory one after another, and blocks that update state vectors")
    for number in range(3):
        x = 130 + 180 * number
        sketch.box(x, 40, 120, 44, f"tokens {20 * number + 1}-{20 * number + 20}\nL steps")
        sketch.box(x, 130, 120, 30, "memory slots", "keep")
        sketch.arrow((x + 45, 84), (x + 45, 128))
        sketch.arrow((x + 75, 130), (x + 75, 86), dashed=True)
        if number < 2:
            sketch.arrow((x + 120, 145), (x + 178, 145))
    sketch.words(20, 66, "depth", "start", soft=True)
    sketch.words(20, 150, "time", "start", soft=True)
    sketch.words(
        330, 195, "each chunk attends to its own tokens and to the memory; the memory reads the chunk", soft=True
    )
    return sketch.svg()


def caches() -> str:
    sketch = Sketch(640, 220, "A cache of keys grows with the context; memory slots and state vectors do not")
    sketch.words(160, 24, "xPos Transformer, UT, GUT, NDR, SUT")
    for row in range(4):
        for column in range(9):
            sketch.box(30 + 30 * column, 40 + 30 * row, 26, 24, "", "work" if column < 6 + row % 2 else "off")
    sketch.words(160, 180, "keys and values of every token, step by step", soft=True)
    sketch.words(160, 198, "grows with each token", soft=True)
    sketch.words(480, 24, "TLB, GUTLB, Block-Recurrent, LSTM, DNC")
    sketch.box(370, 60, 120, 70, "memory or\nstate vectors", "keep")
    sketch.box(510, 60, 110, 70, "tokens of the\nchunk begun", "in")
    sketch.words(490, 180, "what was read before is in the memory", soft=True)
    sketch.words(490, 198, "constant size", soft=True)
    return sketch.svg()


def xpos_transformer() -> str:
    return flow(
        "Embeddings, L layers with weights of their own, pooling and the head",
        [
            ("tokens\nBOS … EOS", "in"),
            ("layer 1\nxPos attention,\nfeed-forward", "work"),
            ("layer 2", "work"),
            ("… layer L", "work"),
            ("mean over\ntokens", "out"),
            ("head", "out"),
        ],
    )


def ut() -> str:
    return flow(
        "One block is applied again and again; each token's halting head decides when its soft state is final",
        [
            ("tokens\nBOS … EOS", "in"),
            ("xPos attention\nqueries of H\nkeys of S", "work"),
            ("feed-forward", "work"),
            ("halting head\nof each token", "gate"),
            ("soft states S\nweighted by\nhalting mass", "keep"),
            ("pooling, head", "out"),
        ],
        loops=[(3, 1, "until the token's mass is used up, at most L times")],
        sides=[(4, 1, "keys and values of the next step")],
    )


def gut() -> str:
    return flow(
        "A gated block, and one halting decision for the whole sequence by the change of its mean",
        [
            ("tokens\nBOS … EOS", "in"),
            ("xPos attention", "work"),
            ("feed-forward", "work"),
            ("gate g mixes\nnew and old\nstate", "gate"),
            ("halting head\nof mean(H), and\nof its change", "gate"),
            ("soft states S,\nend token, head", "out"),
        ],
        loops=[(4, 1, "until the sequence's mass is used up, at most L times")],
        sides=[(0, 3, "the old state of each step")],
    )


def tlb() -> str:
    return flow(
        "A chunk attends to itself and to the memory, then the memory reads the chunk",
        [
            ("chunk t\ng tokens", "in"),
            ("attention\nin the chunk", "work"),
            ("attention\nto the memory", "work"),
            ("feed-forward", "work"),
            ("memory reads\nthe chunk\nU layers", "keep"),
            ("memory M\nof chunk t + 1", "keep"),
        ],
        loops=[(3, 1, "L layers with weights of their own")],
        sides=[(5, 2, "the next chunk starts with it")],
    )


def gutlb() -> str:
    return flow(
        "GUT's depth loop within each chunk, and TLB's memory between chunks",
        [
            ("chunk t\ng tokens", "in"),
            ("attention in\nthe chunk, and\nto the memory", "work"),
            ("feed-forward\nand gate", "work"),
            ("halting head\nof the chunk", "gate"),
            ("memory reads\nthe soft states", "keep"),
            ("memory M\nof chunk t + 1", "keep"),
        ],
        loops=[(3, 1, "until the chunk's mass is used up, at most L times")],
        sides=[(5, 1, "the next chunk starts with it")],
    )


def block_recurrent() -> str:
    return flow(
        "Tokens of a block attend to a window and to state vectors; the states read the block and are gated",
        [
            ("block of W\ntokens", "in"),
            ("layers with a\nsliding window", "work"),
            ("recurrent layer\nwindow + states", "work"),
            ("layers with a\nsliding window", "work"),
            ("logits", "out"),
            ("states read\nblock and states", "work"),
            ("gate: old\nand new state", "gate"),
        ],
        sides=[(2, 5, "keys and values of the block"), (6, 2, "states of the next block")],
    )


def ndr() -> str:
    return flow(
        "Geometric attention finds the nearest match; a copy gate keeps a column unless what it needs has arrived",
        [
            ("tokens\nBOS … EOS", "in"),
            ("geometric\nattention:\nnearest match", "work"),
            ("layer norm and\nfeed-forward", "work"),
            ("copy gate:\nkeep or take\nthe update", "gate"),
            ("state of the\nlast token, head", "out"),
        ],
        loops=[(3, 1, "T steps, or until an exit criterion stops it")],
        sides=[(0, 3, "the old state of each step")],
    )


def rnn() -> str:
    return flow(
        "Tokens one after another through an LSTM; a DNC also writes and reads an external memory",
        [
            ("embedding of\ntoken t", "in"),
            ("LSTM", "work"),
            ("DNC: write", "gate"),
            ("memory of\nM cells", "keep"),
            ("DNC: R read\nheads", "gate"),
            ("state of the\nlast token, head", "out"),
        ],
        loops=[(4, 1, "token after token")],
    )


def sut() -> str:
    return flow(
        "Routers choose k of E attention experts and k of E feed-forward experts of each token at each step",
        [
            ("tokens", "in"),
            ("router: k of E\nattention experts\nof H heads", "gate"),
            ("attention\nkeys shared by\nall experts", "work"),
            ("router: k of E\nfeed-forward\nexperts", "gate"),
            ("stick-breaking\nhalting of\neach token", "gate"),
            ("soft states", "keep"),
        ],
        loops=[(4, 1, "until the token halts, at most L times")],
        sides=[(5, 2, "keys and values of the next step")],
    )


def albert() -> str:
    return flow(
        "ALBERT's one layer, and the classifier of each step that an exit criterion looks at",
        [
            ("tokens,\npositions, types", "in"),
            ("one layer:\nattention,\nfeed-forward", "work"),
            ("pooler of the\nfirst token", "work"),
            ("classifier, one\nor one a step", "out"),
            ("exit criterion,\nsuch as patience", "gate"),
        ],
        loops=[(4, 1, "until the sequence stops, at most 12 times")],
    )


def ouro() -> str:
    return flow(
        "All N layers of a language model are applied again; an exit gate of each token tells when to stop",
        [
            ("tokens", "in"),
            ("N layers,\nrotary positions", "work"),
            ("final norm", "work"),
            ("exit gate of\neach token", "gate"),
            ("logits", "out"),
        ],
        loops=[(3, 1, "T steps, or until the token's exit probability is q")],
    )


def huginn() -> str:
    return flow(
        "A prelude, a core that is applied any number of times, and a coda",
        [
            ("tokens", "in"),
            ("prelude\n2 layers", "work"),
            ("adapter of\nstate and\nembedded input", "gate"),
            ("core\n4 layers", "work"),
            ("coda\n2 layers", "work"),
            ("logits", "out"),
        ],
        loops=[(3, 2, "r steps, as many as you ask for")],
        sides=[(1, 2, "the embedded input of every step")],
    )


# path under docs/ -> its drawing
DRAWINGS: dict[str, Callable[[], str]] = {
    "figures/steps_by_functions.svg": steps_by_functions,
    "concepts/figures/recurrent_depth.svg": recurrent_depth,
    "concepts/figures/halting.svg": halting,
    "concepts/figures/compaction.svg": compaction,
    "concepts/figures/chunks_and_blocks.svg": chunks_and_blocks,
    "concepts/figures/caches.svg": caches,
    "architectures/figures/xpos_transformer.svg": xpos_transformer,
    "architectures/figures/ut.svg": ut,
    "architectures/figures/gut.svg": gut,
    "architectures/figures/tlb.svg": tlb,
    "architectures/figures/gutlb.svg": gutlb,
    "architectures/figures/block_recurrent.svg": block_recurrent,
    "architectures/figures/ndr.svg": ndr,
    "architectures/figures/rnn.svg": rnn,
    "architectures/figures/sut.svg": sut,
    "architectures/figures/albert_recurrent.svg": albert,
    "architectures/figures/ouro_recurrent.svg": ouro,
    "architectures/figures/huginn_recurrent.svg": huginn,
}
