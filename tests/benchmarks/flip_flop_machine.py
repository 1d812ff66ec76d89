"""The task by its definition, one word at a time, without any of the package's code."""


def run(text):
    """(word index of its bit, number of the write, word index of the write's bit, right or not) of every read."""
    memory, number, place, reads = None, 0, None, []
    words = text.split(" ")
    for i in range(0, len(words), 2):
        instruction, bit = words[i], words[i + 1]
        assert bit in ("0", "1")
        if instruction == "w":
            memory, number, place = bit, number + 1, i + 1
        elif instruction == "r":
            reads.append((i + 1, number, place, bit == memory))
        else:
            assert instruction == "i"
    return reads


def check_row(row):
    """That a row of the data set is a string of the task, and that its columns say what is in it."""
    words, reads = row["text"].split(" "), run(row["text"])
    assert len(words) == row["length"]
    assert (words[0], words[-2]) == ("w", "r")
    assert all(right for *_, right in reads)
    assert row["num_reads"] == len(reads) == words.count("r")
    last, _, place, _ = reads[-1]
    assert row["distance"] == len(words[place + 1 : last - 1])
