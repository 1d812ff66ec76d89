"""Where the tasks of Long Range Arena are from."""

from ..listops.family import LISTOPS

PAPER = "https://arxiv.org/abs/2011.04006"
CITATION = (
    "Yi Tay, Mostafa Dehghani, Samira Abnar, Yikang Shen, Dara Bahri, Philip Pham, Jinfeng Rao, Liu Yang, Sebastian "
    "Ruder and Donald Metzler. Long Range Arena: A Benchmark for Efficient Transformers. ICLR, 2021."
)
_ARENA = """@inproceedings{tay2021long,
  title = {Long Range Arena: A Benchmark for Efficient Transformers},
  author = {Tay, Yi and Dehghani, Mostafa and Abnar, Samira and Shen, Yikang and Bahri, Dara and Pham, Philip and
            Rao, Jinfeng and Yang, Liu and Ruder, Sebastian and Metzler, Donald},
  booktitle = {International Conference on Learning Representations},
  year = {2021},
  url = {https://arxiv.org/abs/2011.04006}
}"""
_SOURCES = {
    "listops": LISTOPS.info.bibtex,
    "text": """@inproceedings{maas2011learning,
  title = {Learning Word Vectors for Sentiment Analysis},
  author = {Maas, Andrew L. and Daly, Raymond E. and Pham, Peter T. and Huang, Dan and Ng, Andrew Y. and
            Potts, Christopher},
  booktitle = {Annual Meeting of the Association for Computational Linguistics},
  year = {2011},
  url = {https://aclanthology.org/P11-1015}
}""",
    "retrieval": """@article{radev2013acl,
  title = {The ACL Anthology Network Corpus},
  author = {Radev, Dragomir R. and Muthukrishnan, Pradeep and Qazvinian, Vahed and Abu-Jbara, Amjad},
  journal = {Language Resources and Evaluation},
  volume = {47},
  year = {2013}
}""",
    "image": """@techreport{krizhevsky2009learning,
  title = {Learning Multiple Layers of Features from Tiny Images},
  author = {Krizhevsky, Alex},
  institution = {University of Toronto},
  year = {2009}
}""",
    "pathfinder": """@inproceedings{linsley2018learning,
  title = {Learning Long-Range Spatial Dependencies with Horizontal Gated Recurrent Units},
  author = {Linsley, Drew and Kim, Junkyung and Veerabadran, Vijay and Windolf, Charles and Serre, Thomas},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2018},
  url = {https://arxiv.org/abs/1805.08315}
}""",
}


def bibtex(task: str) -> str:
    """The entries of the arena and of the paper that a task's data are from."""
    return f"{_ARENA}\n\n{_SOURCES[task]}"
