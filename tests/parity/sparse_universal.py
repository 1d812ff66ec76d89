"""Running models of "Sparse Universal Transformer", with results under its authors' names.

Shapes: B sequences, S tokens, L depth steps, d width, E experts, k of them for a token, V token ids.
"""

from contextlib import contextmanager

import torch
from torch.nn import functional as F

from hf_recurrent.models.sut.routing import RouterStatistics, importance_loss, mutual_information_loss, switch_loss

from .recording import record_calls, require_keys, their_gradients

MODULES = ("self_attn", "cross_attn", "ffd")


@contextmanager
def all_positions(config):
    """Padding and halted tokens are computed, which recorders see then."""
    compaction, config.compaction = config.compaction, False
    try:
        yield
    finally:
        config.compaction = compaction


class Probe:
    """Recorder of one stack's inputs and outputs over all depth steps of a forward pass in `all_positions`."""

    def __init__(self, stack):
        self.stack = stack
        self.calls: list[tuple] = []
        self.gates: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.routings: dict[str, list] = {}
        self.stops = [
            record_calls(stack.block, lambda args, output: (*args[:2], args[3], output), self.calls),
        ]
        self.final: list[torch.Tensor] = []
        self.stops.append(record_calls(stack.final_norm, lambda args, output: args[0], self.final))
        if hasattr(stack, "halting_head"):
            self.stops.append(record_calls(stack.halting_head, lambda args, output: output, self.gates))
        routers = {"self_attn": stack.block.attention.router, "ffd": stack.block.router}
        if stack.block.cross_attention is not None:
            routers["cross_attn"] = stack.block.cross_attention.router
        for name, router in routers.items():
            calls = self.routings.setdefault(name, [])
            self.stops.append(
                record_calls(router, lambda args, output, router=router: (router, args[:2], output), calls)
            )

    def stop(self) -> None:
        for stop in self.stops:
            stop()

    def named(self, prefix: str, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """The records under the authors' names; `mask` (B, S) bool."""
        shape = mask.shape
        steps = [[part.unflatten(0, shape) for part in call[:3]] for call in self.calls]
        last = self.calls[-1][3][0].hidden_states.unflatten(0, shape)
        sources = [source for _, _, source in steps]
        results = {
            "hidden_states": torch.stack([*(hidden for hidden, _, _ in steps), last]),
            "kv_source": torch.stack(sources),
            "skip_mask": torch.stack([weights for _, weights, _ in steps]),
        }
        if self.gates:
            results |= self.halting(mask, results["skip_mask"])
            results["soft_halted"] = torch.stack([*sources[1:], self.final[0]])
        for name, calls in self.routings.items():
            results |= {f"{name}.{key}": value for key, value in routing_results(calls, shape).items()}
            total = sum_statistics(output[2] for _, _, output in calls)
            results |= {f"{name}.{key}": value for key, value in statistics(total).items()}
        return {f"{prefix}.{name}": value for name, value in results.items()}

    def halting(self, mask: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        """Halting under the authors' names, from `weights` (L, B, S)."""
        log_go, log_halt = (torch.stack(each).log().unflatten(1, mask.shape) for each in zip(*self.gates, strict=True))
        log_continue = log_go.cumsum(0)
        before = torch.cat((torch.zeros_like(log_go[:1]), log_continue[:-1]))
        alpha = (log_halt + before).exp()
        number = torch.arange(weights.shape[0], device=weights.device)[:, None, None]
        spent = torch.cat((torch.zeros_like(alpha[:1]), (alpha * number[:-1]).cumsum(0)))
        act = ((spent + weights * number) * mask).sum((1, 2)) / mask.sum()
        return {
            "log_gate": torch.stack((log_go, log_halt), dim=-1),
            "log_continue": log_continue,
            "alpha": alpha,
            "act_loss_per_layer": act,
        }


def routing_results(calls: list, shape: torch.Size) -> dict[str, torch.Tensor]:
    """A router's choices in each depth step, under the authors' names."""
    named: dict[str, list[torch.Tensor]] = {"idx": [], "gates": [], "probs": [], "expert_size": []}
    normalizers = []
    for router, (states, weights), (index, gates, _) in calls:
        logits = router.output(router.hidden(states).tanh())
        normalizers.append((logits * (weights > 0)[:, None]).logsumexp(-1))
        dense = torch.zeros_like(logits).scatter(-1, index, gates)
        named["idx"].append(index.unflatten(0, shape))
        named["gates"].append(dense.unflatten(0, shape))
        named["probs"].append((logits.softmax(-1) * (weights > 0)[:, None]).unflatten(0, shape))
        named["expert_size"].append((dense > 0).sum(0))
    stacked = {name: torch.stack(values) for name, values in named.items()}
    # over all positions, padding included
    return stacked | {"official_zloss": torch.cat(normalizers).square().mean()}


def mean_over_tokens(cost: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Mean over all tokens of mean costs (B,) of sequences, with steps (B, S) of -1 at padding."""
    tokens = (steps >= 0).sum(-1)
    return (cost * tokens).sum() / tokens.sum()


def sum_statistics(each) -> RouterStatistics:
    return RouterStatistics(*map(sum, zip(*each, strict=True)))


def statistics(total: RouterStatistics) -> dict[str, torch.Tensor]:
    """Unweighted auxiliary losses over all depth steps, under the authors' names."""
    released, paper = (mutual_information_loss(total, sign) for sign in (True, False))
    return {
        "p_e": total.weighted_probabilities / total.mass,
        "H_e": (released - paper) / 2,
        "H_e_given_x": (released + paper) / 2,
        "mim_official": released,
        "mim_paper": paper,
        "official_miloss": released,
        "official_switchloss": switch_loss(total),
        "official_cvloss": importance_loss(total),
    }


def gradients_of(reference, losses: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients of named losses under the authors' parameter names."""
    named = {}
    for name, loss in losses.items():
        reference.model.zero_grad()
        loss.backward(retain_graph=True)
        named |= their_gradients(reference.model, reference.theirs, reference.ours, f"grad.{name}/", zeros=True)
    return named


class EncoderReference:
    """Our encoder with their weights; see `Reference`. `theirs`: their parameters; `ours`: ours, computed from them."""

    def __init__(self, model, theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor]):
        self.model, self.theirs, self.ours = model, theirs, ours

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        require_keys(io, ["src_tokens", "src_padding_mask", *(["loss_weights"] if gradients else [])])
        mask = ~io["src_padding_mask"]
        probe = Probe(self.model)
        with torch.set_grad_enabled(gradients), all_positions(self.model.config):
            output = self.model(io["src_tokens"], mask, output_hidden_states=True, output_router_statistics=True)
            probe.stop()
            results = probe.named("enc", mask)
            results["encoder_out"] = output.last_hidden_state
            losses = self.losses(output, results, io)
        named = results | {f"loss.{name}": loss for name, loss in losses.items() if name != "act"}
        named["act_loss"] = losses.get("act", torch.zeros(()))
        named["stats.n_block_computations"] = output.ponder_steps.clamp_min(0).sum()
        if gradients:
            named |= gradients_of(self, losses)
        return {name: tensor.detach() for name, tensor in named.items()}

    def losses(self, output, results: dict, io: dict) -> dict[str, torch.Tensor]:
        losses = {}
        if "loss_weights" in io:
            losses["main"] = (output.last_hidden_state * io["loss_weights"]).sum()
        if "enc.act_loss_per_layer" in results:
            # ours counts steps from one, theirs from zero
            losses["act"] = mean_over_tokens(output.ponder_cost, output.ponder_steps) - 1.0
        for name, sign in (("mim_official", True), ("mim_paper_sign", False)):
            losses[name] = sum(mutual_information_loss(each, sign) for each in output.router_statistics)
        return losses


class EncoderDecoderReference:
    """Our encoder-decoder with their weights; see `Reference`.

    Args:
        theirs: their parameters.
        ours: values of ours, computed from `theirs`.
        config: their config.
    """

    def __init__(self, model, theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor], config: dict):
        self.model, self.theirs, self.ours, self.config = model, theirs, ours, config

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        require_keys(io, ["src_tokens", "src_padding_mask", "prev_output_tokens", "tgt_padding_mask", "target"])
        if "thresholds" in self.config:
            results = {}
            for threshold in self.config["thresholds"]:
                named = self.run_whole(io, False, threshold)
                named |= {f"stats.n_nonpad_{stack}": count for stack, count in self.nonpad(io).items()}
                results |= {f"thr{threshold}/{name}": tensor for name, tensor in named.items()}
            return results
        if "greedy_steps" in self.config:
            return self.run_steps(io)
        return self.run_whole(io, gradients)

    def nonpad(self, io: dict) -> dict[str, torch.Tensor]:
        """Depth steps of all tokens without halting."""
        return {
            "enc": (~io["src_padding_mask"]).sum() * self.config["encoder_layers"],
            "dec": (~io["tgt_padding_mask"]).sum() * self.config["decoder_layers"],
        }

    def inputs(self, io: dict) -> dict[str, torch.Tensor]:
        return {
            "input_ids": io["src_tokens"],
            "attention_mask": ~io["src_padding_mask"],
            "decoder_input_ids": io["prev_output_tokens"],
            "decoder_attention_mask": ~io["tgt_padding_mask"],
        }

    def run_whole(self, io: dict, gradients: bool, threshold: float | None = None) -> dict[str, torch.Tensor]:
        inputs, base = self.inputs(io), self.model.model
        masks = {"enc": inputs["attention_mask"], "dec": inputs["decoder_attention_mask"]}
        labels = io["target"].masked_fill(io["tgt_padding_mask"], -100)
        probes = {"enc": Probe(base.encoder), "dec": Probe(base.decoder)}
        with torch.set_grad_enabled(gradients), all_positions(self.model.config):
            output = self.model(**inputs, labels=labels, output_hidden_states=True, halting_threshold=threshold)
            results = {}
            for name, probe in probes.items():
                probe.stop()
                results |= probe.named(name, masks[name])
            results |= self.objective(output, results, labels)
        results |= {
            "encoder_out": output.encoder_last_hidden_state,
            "logits": output.logits,
            "stats.n_block_enc": output.encoder_ponder_steps.clamp_min(0).sum(),
            "stats.n_block_dec": output.ponder_steps.clamp_min(0).sum(),
        }
        if gradients:
            results |= gradients_of(self, {"total": results["loss.official_total"]})
        return {name: tensor.detach() for name, tensor in results.items()}

    def objective(self, output, results: dict, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The losses as the authors sum them up; the total is the training loss times the number of labelled tokens."""
        count = (labels != -100).sum()
        act = {stack: results[f"{stack}.act_loss_per_layer"][-1] for stack in ("enc", "dec")}
        weighted = self.config["act_coef"] * (act["enc"] + act["dec"])
        # ours counts steps from one, theirs from zero
        offset = 2 * self.config["act_coef"]
        total = (output.loss + output.aux_loss) * count - offset
        modules = [f"enc.{name}" for name in ("self_attn", "ffd")] + [f"dec.{name}" for name in MODULES]
        official, paper = (sum(results[f"{name}.mim_{sign}"] for name in modules) for sign in ("official", "paper"))
        smoothed = output.loss * count
        return {
            "act.enc": act["enc"],
            "act.dec": act["dec"],
            "act.total_weighted": weighted,
            "loss.sample_size": count,
            "loss.ce_label_smoothed_sum": smoothed,
            "loss.nll_sum": F.cross_entropy(output.logits.flatten(0, 1), labels.flatten(), reduction="sum"),
            "loss.mim_official_sum": official,
            "loss.mim_paper_sign_sum": paper,
            "loss.official_total": total,
            "loss.total_paper_sign": total + self.config["mim_coef"] * (paper - official),
        }

    @torch.no_grad()
    def run_steps(self, io: dict) -> dict[str, torch.Tensor]:
        """Logits at once and token by token, and generated tokens."""
        inputs = self.inputs(io)
        whole = self.model(**inputs)
        source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        cache, encoder_outputs, logits, active = None, None, [], []
        for token in io["prev_output_tokens"].split(1, dim=1):
            output = self.model(
                attention_mask=source["attention_mask"],
                **({"input_ids": source["input_ids"]} if cache is None else {"encoder_outputs": encoder_outputs}),
                decoder_input_ids=token,
                past_key_values=cache,
                use_cache=True,
            )
            cache, encoder_outputs = output.past_key_values, (output.encoder_last_hidden_state,)
            logits.append(output.logits)
            steps = torch.arange(self.config["decoder_layers"], device=token.device)
            active.append((output.ponder_steps > steps).sum(0))
        results = {
            "encoder_out": whole.encoder_last_hidden_state,
            "logits_full": whole.logits,
            "logits_steps": torch.cat(logits, dim=1),
            "active_per_step_and_layer": torch.stack(active),
        }
        return results | self.generated(source)

    def generated(self, source: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        steps, pad = self.config["greedy_steps"], self.config["pad_idx"]
        greedy = self.model.generate(
            **source, max_new_tokens=steps, min_new_tokens=1, suppress_tokens=[pad], do_sample=False
        )
        return {"greedy_tokens": F.pad(greedy, (0, steps + 1 - greedy.shape[1]), value=pad)}
