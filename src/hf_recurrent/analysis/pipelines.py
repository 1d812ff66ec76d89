"""transformers' text classification pipeline, with the depth steps of each text."""

import difflib
from typing import Any

from transformers import TextClassificationPipeline

from ..models.base.arguments import CALL_OPTIONS
from .answers import mean_steps


class RecurrentTextClassificationPipeline(TextClassificationPipeline):
    """`pipeline("text-classification", model, pipeline_class=RecurrentTextClassificationPipeline)`.

    Besides the arguments of transformers' pipeline, when it is made or called, it takes

    - `return_steps=True`: every result has `steps`, the executed depth steps of the text, mean over its halting units;
      None for a fixed depth. With `top_k` each label's result has them.
    - `max_depth`, `halting_threshold`, `exit_criterion`, `exit_threshold`, `exit_patience`, `min_depth`: as of the
      model's forward pass.

    The model may come from this package or, with `trust_remote_code=True`, from its checkpoint's own code.

    >>> from transformers import pipeline
    >>> classify = pipeline("text-classification", folder, pipeline_class=RecurrentTextClassificationPipeline)
    >>> classify("[MAX 2 9 [MIN 4 7 ] 0 ]", return_steps=True)
    """

    def _sanitize_parameters(self, return_steps: bool | None = None, **kwargs: Any) -> tuple[dict, dict, dict]:
        depth = {name: kwargs.pop(name) for name in CALL_OPTIONS if name in kwargs}
        for name in kwargs:
            # transformers passes what it does not know on to the tokenizer, which ignores it
            near = difflib.get_close_matches(name, (*CALL_OPTIONS, "return_steps"), n=1, cutoff=0.85)
            if near:
                raise ValueError(f"the pipeline has no argument `{name}`: did you mean `{near[0]}`?")
        preprocess, forward, postprocess = super()._sanitize_parameters(**kwargs)
        if return_steps is not None:
            postprocess["return_steps"] = return_steps
        return preprocess, forward | depth, postprocess

    def _forward(self, model_inputs: Any, **depth: Any) -> Any:
        return super()._forward({**model_inputs, **depth})

    def postprocess(self, model_outputs: Any, return_steps: bool = False, **kwargs: Any) -> Any:
        results = super().postprocess(model_outputs, **kwargs)
        if not return_steps:
            return results
        steps = model_outputs.get("ponder_steps")
        steps = None if steps is None else mean_steps(steps, 1).item()
        if isinstance(results, dict):
            return {**results, "steps": steps}
        return [{**result, "steps": steps} for result in results]
