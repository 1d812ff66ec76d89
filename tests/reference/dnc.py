"""A differentiable neural computer for one sequence without padding, cell by cell.

n tokens, M memory cells, W width of a cell, R read heads.
"""

import torch

EPSILON = 1e-6


def oneplus(value: torch.Tensor) -> torch.Tensor:
    return 1 + (1 + value.exp()).log()


def length(vector: torch.Tensor) -> torch.Tensor:
    """Euclidean, with no gradient at zero."""
    return vector.pow(2).sum().sqrt() if vector.detach().any() else torch.zeros((), dtype=vector.dtype)


def content(slots: torch.Tensor, key: torch.Tensor, strength: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    scores = []
    for slot in slots:
        hidden, sought = (slot, key) if mask is None else (slot * mask, key * mask)
        scores.append(strength * (hidden @ sought) / (length(hidden) * length(sought) + EPSILON))
    return torch.stack(scores).softmax(0)


def allocation(usage: torch.Tensor) -> torch.Tensor:
    """Allocation weight of each cell: less used cells come first, and equal ones in order."""
    used = [cell * (1 - EPSILON) + EPSILON for cell in usage]
    weights = []
    for place, share in enumerate(used):
        weight = 1 - share
        for other, before in enumerate(used):
            if before < share or (before == share and other < place):
                weight = weight * before
        weights.append(weight)
    return torch.stack(weights)


def next_links(links, precedence: torch.Tensor, write: torch.Tensor) -> list[list[torch.Tensor]]:
    size = len(write)
    zero = torch.zeros((), dtype=write.dtype)
    return [
        [zero if i == j else (1 - write[i] - write[j]) * links[i][j] + write[i] * precedence[j] for j in range(size)]
        for i in range(size)
    ]


def sharpen(weights: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    weights = weights + EPSILON
    powers = (weights / weights.max()) ** exponent
    return powers / powers.sum()


def controller(module, inputs: torch.Tensor, hidden: list, cell: list) -> tuple[list, list]:
    new_hidden, new_cell = [], []
    for layer, before in enumerate(hidden):
        gates = module.input_proj[layer].weight @ inputs + module.input_proj[layer].bias
        gates = gates + module.state_proj[layer].weight @ before
        if layer > 0:
            gates = gates + module.below_proj[layer - 1].weight @ new_hidden[-1]
        forget, admit, emit, candidate = gates.split(len(before))
        new_cell.append(forget.sigmoid() * cell[layer] + admit.sigmoid() * candidate.tanh())
        new_hidden.append(emit.sigmoid() * new_cell[-1].tanh())
    return new_hidden, new_cell


def run_row(cell, config, tokens: torch.Tensor) -> torch.Tensor:
    """Embedded tokens (n, I) through the weights of a `DNCCell` -> (n, E)."""
    num_slots, width, heads = config.num_memory_cells, config.memory_cell_size, config.num_read_heads

    def zeros(*size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=tokens.dtype)

    hidden, memory_cell = ([zeros(config.hidden_size)] * config.num_hidden_layers for _ in range(2))
    slots, usage, write, precedence = zeros(num_slots, width), zeros(num_slots), zeros(num_slots), zeros(num_slots)
    links = [[zeros()] * num_slots for _ in range(num_slots)]
    reads, vectors = [zeros(num_slots)] * heads, [zeros(width)] * heads
    outputs = []
    for token in tokens:
        hidden, memory_cell = controller(cell.controller, torch.cat((token, *vectors)), hidden, memory_cell)
        control = torch.cat(hidden)
        controls = iter((cell.interface_proj.weight @ control + cell.interface_proj.bias).clamp(-20, 20))

        def take(count: int, controls=controls) -> torch.Tensor:
            return torch.stack([next(controls) for _ in range(count)])

        mask = take(width).sigmoid() if config.memory_masking else None
        key, erase, vector = take(width), take(width).sigmoid(), take(width)
        free, strength, allocate, gate = take(heads).sigmoid(), oneplus(take(1)), take(1).sigmoid(), take(1).sigmoid()
        retained = torch.ones(num_slots, dtype=tokens.dtype)
        for head in range(heads):
            retained = retained * (1 - free[head] * reads[head])
        old_write = write.detach()
        usage = (usage + old_write - usage * old_write) * retained
        found = content(slots, key, strength.squeeze(), mask)
        write = gate * (allocate * allocation(usage) + (1 - allocate) * found)
        kept = [retained[i] if config.memory_deallocation else 1 for i in range(num_slots)]
        slots = torch.stack([slots[i] * kept[i] * (1 - write[i] * erase) + write[i] * vector for i in range(num_slots)])
        links = next_links(links, precedence, write)
        precedence = (1 - write.sum()) * precedence + write

        masks = take(heads * width).sigmoid().view(heads, width) if config.memory_masking else [None] * heads
        keys, strengths = take(heads * width).view(heads, width), oneplus(take(heads))
        modes = take(3 * heads).view(heads, 3).softmax(-1)
        exponents = oneplus(take(2 * heads)).view(2, heads) if config.link_sharpening else None
        new_reads = []
        for head, read in enumerate(reads):
            ahead = torch.stack([sum(links[i][j] * read[j] for j in range(num_slots)) for i in range(num_slots)])
            back = torch.stack([sum(links[i][j] * read[i] for i in range(num_slots)) for j in range(num_slots)])
            if exponents is not None:
                ahead, back = sharpen(ahead, exponents[0, head]), sharpen(back, exponents[1, head])
            found = content(slots, keys[head], strengths[head], masks[head])
            new_reads.append(modes[head, 0] * back + modes[head, 1] * found + modes[head, 2] * ahead)
        reads = new_reads
        vectors = [read @ slots for read in reads]
        output = cell.output_proj.weight @ control + cell.output_proj.bias
        outputs.append(output + cell.read_proj.weight @ torch.cat(vectors) + cell.read_proj.bias)
    return torch.stack(outputs)
