# For a repository of Ramble applications: repos/NAME/applications/skt-hpl/application.py

from ramble.appkit import *


class SktHpl(ExecutableApplication):
    """High-Performance Linpack, drop-in for xhpl, whose runs survive the loss of nodes"""

    name = "skt-hpl"

    tags("benchmark-app", "benchmark", "linpack")

    software_spec("skt-hpl", pkg_spec="skt-hpl", package_manager="spack*")
    required_package("skt-hpl", package_manager="spack*")

    executable(
        "run",
        "skt-hpl --n {n} --nb {nb} --p {p} --q {q} --ft {ft} {options}",
        use_mpi=True,
    )

    workload("standard", executables=["run"])

    workload_variable(
        "n", default="20000", description="Order of the matrix", workloads=["standard"]
    )
    workload_variable(
        "nb",
        default="192,256",
        description="Block sizes, each of which is a test",
        workloads=["standard"],
    )
    workload_variable(
        "p", default="1", description="Process rows; P x Q is n_ranks", workloads=["standard"]
    )
    workload_variable(
        "q", default="{n_ranks}", description="Process columns", workloads=["standard"]
    )
    workload_variable(
        "ft",
        default="none",
        values=["none", "self", "double", "single", "abft"],
        description="How the run is protected against the loss of ranks",
        workloads=["standard"],
    )
    workload_variable(
        "options",
        default="",
        description="Further flags, such as --depth 0 --threads 4",
        workloads=["standard"],
    )

    # A result line, as HPL prints it: T/V, N, NB, P, Q, seconds, Gflop/s.
    result = (
        r"^(?P<variant>W[RC]\d\S+)\s+(?P<N>\d+)\s+(?P<NB>\d+)\s+(?P<P>\d+)\s+(?P<Q>\d+)"
        r"\s+(?P<time>\d+\.\d+)\s+(?P<gflops>\d\S+)"
    )

    figure_of_merit_context(
        "test", regex=result, output_format="{variant} N={N} NB={NB} P={P} Q={Q}"
    )
    figure_of_merit(
        "Time", fom_regex=result, group_name="time", units="s", contexts=["test"]
    )
    figure_of_merit(
        "Rate", fom_regex=result, group_name="gflops", units="Gflop/s", contexts=["test"]
    )
    figure_of_merit(
        "Residual",
        fom_regex=r"^\|\|Ax-b\|\|_oo.*=\s*(?P<residual>\S+) \.\.\.\.\.\. (?:PASSED|FAILED)",
        group_name="residual",
        units="",
        contexts=["test"],
    )
    figure_of_merit(
        "Efficiency",
        fom_regex=r"^# efficiency: (?P<efficiency>\S+) % of",
        group_name="efficiency",
        units="% of DGEMM",
        contexts=["test"],
    )

    success_criteria(
        "residuals",
        mode="string",
        match=r"^\s+0 tests completed and failed residual checks",
        file="{log_file}",
    )
    success_criteria("end", mode="string", match=r"^End of Tests\.", file="{log_file}")
