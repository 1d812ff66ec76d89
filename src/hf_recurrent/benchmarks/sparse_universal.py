"""The paper of the benchmarks that the Sparse Universal Transformer is tested on."""

PAPER = "https://arxiv.org/abs/2310.07096"
CITATION = (
    "Shawn Tan, Yikang Shen, Zhenfang Chen, Aaron Courville and Chuang Gan. Sparse Universal Transformer. EMNLP, 2023."
)
BIBTEX = """@inproceedings{tan2023sparse,
  title = {Sparse Universal Transformer},
  author = {Tan, Shawn and Shen, Yikang and Chen, Zhenfang and Courville, Aaron and Gan, Chuang},
  booktitle = {Conference on Empirical Methods in Natural Language Processing},
  year = {2023},
  url = {https://arxiv.org/abs/2310.07096}
}"""
