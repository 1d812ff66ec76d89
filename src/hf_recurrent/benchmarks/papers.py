"""Papers that several benchmarks are from: address, citation and BibTeX entry, as fields of `BenchmarkInfo`."""

NEURAL_DATA_ROUTER = dict(
    paper="https://arxiv.org/abs/2110.07732",
    citation="Róbert Csordás, Kazuki Irie and Jürgen Schmidhuber. The Neural Data Router: Adaptive Control Flow "
    "in Transformers Improves Systematic Generalization. ICLR, 2022.",
    bibtex="""@inproceedings{csordas2022neural,
  title = {The Neural Data Router: Adaptive Control Flow in Transformers Improves Systematic Generalization},
  author = {Csord{\\'a}s, R{\\'o}bert and Irie, Kazuki and Schmidhuber, J{\\"u}rgen},
  booktitle = {International Conference on Learning Representations},
  year = {2022},
  url = {https://arxiv.org/abs/2110.07732}
}""",
)
SPARSE_UNIVERSAL_TRANSFORMER = dict(
    paper="https://arxiv.org/abs/2310.07096",
    citation="Shawn Tan, Yikang Shen, Zhenfang Chen, Aaron Courville and Chuang Gan. Sparse Universal "
    "Transformer. EMNLP, 2023.",
    bibtex="""@inproceedings{tan2023sparse,
  title = {Sparse Universal Transformer},
  author = {Tan, Shawn and Shen, Yikang and Chen, Zhenfang and Courville, Aaron and Gan, Chuang},
  booktitle = {Conference on Empirical Methods in Natural Language Processing},
  year = {2023},
  url = {https://arxiv.org/abs/2310.07096}
}""",
)
