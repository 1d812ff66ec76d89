"""The paper of the benchmarks that the Neural Data Router is tested on."""

PAPER = "https://arxiv.org/abs/2110.07732"
CITATION = (
    "Róbert Csordás, Kazuki Irie and Jürgen Schmidhuber. The Neural Data Router: Adaptive Control Flow "
    "in Transformers Improves Systematic Generalization. ICLR, 2022."
)
BIBTEX = """@inproceedings{csordas2022neural,
  title = {The Neural Data Router: Adaptive Control Flow in Transformers Improves Systematic Generalization},
  author = {Csord{\\'a}s, R{\\'o}bert and Irie, Kazuki and Schmidhuber, J{\\"u}rgen},
  booktitle = {International Conference on Learning Representations},
  year = {2022},
  url = {https://arxiv.org/abs/2110.07732}
}"""
