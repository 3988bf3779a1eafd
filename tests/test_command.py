"""The command `tilewise` says what it is and what it is for."""

import pytest

from tilewise.__main__ import main


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--version", ["tilewise 1."]),
        ("--help", ["study of CUDA matrix multiplication", "make report", "trace", "docs/"]),
    ],
)
def test_version_and_help(option, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([option])
    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0 and all(word in said for word in words), said
