"""evaluate's evaluator of text classification, for pipelines."""

from typing import Any

from evaluate import TextClassificationEvaluator
from transformers import Pipeline


class PipelineEvaluator(TextClassificationEvaluator):
    """`evaluate.evaluator("text-classification")` that takes a pipeline with `transformers` 5, too.

    evaluate 0.4.6 looks there for a class of TensorFlow models that is no more, whatever the pipeline is of.

    >>> classify = pipeline("text-classification", folder, pipeline_class=RecurrentTextClassificationPipeline)
    >>> PipelineEvaluator().compute(classify, rows, metric="accuracy", label_mapping=classify.model.config.label2id)
    """

    def prepare_pipeline(self, model_or_pipeline: Any, *args: Any, **kwargs: Any) -> Any:
        """The pipeline itself, or one of a model, as of evaluate's own.

        Raises:
            ValueError: it is of another task.
        """
        if not isinstance(model_or_pipeline, Pipeline):
            return super().prepare_pipeline(model_or_pipeline, *args, **kwargs)
        if model_or_pipeline.task != self.task:
            raise ValueError(f"the pipeline is for {model_or_pipeline.task!r}: pass one for {self.task!r}")
        return model_or_pipeline
