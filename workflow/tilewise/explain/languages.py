"""Compare languages on one product, from the task `languages`, with cuBLAS and the fastest kernel of the study."""

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.timings import beside_anchor, best, by_shape, describe
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import LANGUAGES, Kind
from tilewise.study.sources import lines_of_code
from tilewise.study.status import Status


def by_language(evidence: Evidence) -> pd.DataFrame:
    """The best row of each kernel, type and shape, with its language, its lines of code and its shares in %.

    percent_of_anchor is the share of cuBLAS, percent_of_cuda that of the fastest kernel of CUDA C++ in the task; a row
    that did not run keeps its place, with its status and message.
    """
    rows = describe(evidence.select_tasks("languages").gpu, evidence)
    table = by_shape(beside_anchor(best(rows), rows, evidence))
    kernels = [evidence.kernels.get(name) for name in table["kernel"]]
    packages = [LANGUAGES[k.kind].package if k and k.kind in LANGUAGES else "" for k in kernels]
    versions = [evidence.device(where).versions.get(name, "") for where, name in zip(table["platform"], packages)]
    table = table.assign(
        language=pd.Series([language_of(kernel.kind) if kernel else "" for kernel in kernels], dtype="str"),
        version=pd.Series(versions, dtype="str"),
        lines=pd.Series([lines_of_code(k.files) if k and k.source else None for k in kernels], dtype="Int64"),
    )
    cuda = (table["language"] == language_of(Kind.CUDA)) & (table["status"] == Status.OK)
    of_cuda = table.assign(time_ms=table["time_ms"].where(cuda)).groupby(["platform", "dtype", *SHAPE])["time_ms"]
    return table.assign(percent_of_cuda=100 * of_cuda.transform("min") / table["time_ms"])


def language_of(kind: Kind) -> str:
    """The name of the language of a kind of kernel."""
    language = LANGUAGES.get(kind)
    return language.name if language else {Kind.CUDA: "CUDA C++", Kind.LIBRARY: "library"}.get(kind, str(kind))
