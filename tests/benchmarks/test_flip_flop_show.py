"""What `show` and the card print of a flip-flop string: every read beside the write that it must recall."""

from flip_flop_machine import run

from hf_recurrent.benchmarks import describe_example, examples, render_example

ALL = 10**6


def test_a_string():
    assert render_example("flip_flop", {"text": "w 0 i 1 r 0 w 1 r 1"}) == "w0  i1  r0  w1  r1\n1       =1  2   =2"
    # as people write it, and as a model gets it wrong
    assert render_example("flip_flop", {"text": "W0 i1 r1"}) == "w0   i1   r1\n1         =1!"
    assert render_example("flip_flop", {"text": "w 0" + " i 1" * 20}).splitlines() == [
        "w0" + "  i1" * 15,
        "1",
        "i1" + "  i1" * 4,
    ]


def test_the_end_of_a_long_string_stays():
    text = "w 0" + " r 0" * 511
    whole = render_example("flip_flop", {"text": text}, ALL).splitlines()
    assert len(whole) == 64
    for most in (4, 7, 40, 63):
        shown = render_example("flip_flop", {"text": text}, most).splitlines()
        kept = most - most % 2
        assert len(shown) == kept
        assert shown[-2:] == whole[-2:]
        assert shown[: kept - 3] == whole[: kept - 3]
        assert shown[-3] == f"{whole[kept - 3]} ... ({64 - kept} more)"
    assert render_example("flip_flop", {"text": text}, 64).splitlines() == whole


def test_description():
    row = {"text": "w 0 w 1 i 0 i 0 r 1", "length": 10, "ignore_percent": 50, "num_reads": 1, "distance": 4}
    shown = describe_example("flip_flop", row)
    assert shown.answer == "the last read must recall 1, from write 2, 4 tokens before it"
    assert shown.label == ""
    assert shown.difficulty == {name: value for name, value in row.items() if name != "text"}
    assert describe_example("flip_flop", row | {"text": "w 0"}).answer == "there is no read"
    # a mistake of a model does not change what it should have said
    assert "recall 1, from write 2" in describe_example("flip_flop", row | {"text": "w 0 w 1 r 0"}).answer
    for example in examples("flip_flop", None, 9, train_length=30):
        place, write, write_place, _ = run(example.row["text"])[-1]
        bit = example.row["text"].split()[write_place]
        between = place - 1 - (write_place + 1)
        answer = describe_example("flip_flop", example.row).answer
        assert answer == f"the last read must recall {bit}, from write {write}, {between} tokens before it"
        assert between == example.row["distance"]
