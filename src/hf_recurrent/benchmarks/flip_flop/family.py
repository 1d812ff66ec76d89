"""What flip-flop language modelling says about itself."""

from types import MappingProxyType

from ..family import Family, family_info
from . import configs, splits, strings, trees

FLIP_FLOP = Family(
    info=family_info(
        configs,
        name="flip_flop",
        title="Flip-Flop Language Modelling",
        description="Strings of instructions, each followed by a bit: w writes it, i is to be ignored, and after r "
        "stands the bit that was written last, which a language model must predict.",
        label_names=(),
        text_columns=("text",),
        slice_columns=("length", "ignore_percent", "num_reads", "distance"),
        # the others are the same, or nearly, in all rows of a test split
        filter_column="distance",
        column_meanings=MappingProxyType(
            {
                "text": "the string; words are separated by single spaces",
                "length": "words of the string, instructions and bits alike",
                "ignore_percent": "100 times the probability that an instruction is `i`, other than the first, which "
                "is `w`, and the last, which is `r`",
                "num_reads": "reads (`r`) of the string",
                "distance": "words between the last read and the write that it must recall, each with its bit; 0 if "
                "they are neighbours",
            }
        ),
        parse_meaning="the string in columns of an instruction and its bit; below each write its number, and below "
        "each read `=` with the number of the write whose bit it must have (and `!` if it has another)",
        vocabulary=strings.VOCABULARY,
        paper="https://arxiv.org/abs/2306.00946",
        citation="Bingbin Liu, Jordan T. Ash, Surbhi Goel, Akshay Krishnamurthy and Cyril Zhang. Exposing Attention "
        "Glitches with Flip-Flop Language Modeling. arXiv:2306.00946, 2023.",
        bibtex="""@article{liu2023exposing,
  title = {Exposing Attention Glitches with Flip-Flop Language Modeling},
  author = {Liu, Bingbin and Ash, Jordan T. and Goel, Surbhi and Krishnamurthy, Akshay and Zhang, Cyril},
  journal = {arXiv preprint arXiv:2306.00946},
  year = {2023},
  url = {https://arxiv.org/abs/2306.00946}
}""",
        limits=(
            "Only the bit after an `r` can be predicted: train and score on these bits alone. Instructions are random, "
            "and so are the bits after `w` and `i`.",
            "Reads before the last one show the bit of their write too: with many reads, copying it from the nearest "
            "one is easier than `distance` says.",
            "The defaults of lengths, probabilities and sizes are those of Ray Chowdhury and Caragea, Investigating "
            "Recurrent Transformers with Dynamic Halt; their validation split counts the training distribution twice, "
            "this one does not.",
        ),
    ),
    configs=configs,
    splits=splits,
    trees=trees,
    normalize=strings.normalize,
)
