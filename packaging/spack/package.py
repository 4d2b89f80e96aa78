# For a repository of Spack packages: repos/NAME/packages/skt_hpl/package.py

from spack_repo.builtin.build_systems.cargo import CargoPackage

from spack.package import *


class SktHpl(CargoPackage):
    """High-Performance Linpack, drop-in for xhpl, whose runs survive the loss of nodes by
    checkpoints in memory or by checksums in the elimination."""

    homepage = "https://github.com/skt-hpl/skt-hpl"
    git = "https://github.com/skt-hpl/skt-hpl.git"

    license("MIT OR Apache-2.0")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("xhpl", default=True, description="Install the name xhpl, too")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")
    depends_on("llvm+clang", type="build")  # libclang reads MPI's header
    depends_on("mpi@3:")
    depends_on("blas", type="run")

    # Linux, by its shared memory and its /proc.
    conflicts("platform=darwin")
    conflicts("platform=windows")
    # BLAS is called with 32-bit integers.
    conflicts("^openblas+ilp64")

    # The program: the library crates of the workspace are built with it.
    build_args = ["--locked", "--bin", "skt-hpl"]

    def setup_build_environment(self, env):
        env.set("MPICC", self.spec["mpi"].mpicc)
        env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)
        # cargo does not know Spack's folders at run time.
        folders = self.spec["mpi"].libs.directories
        env.set("RUSTFLAGS", " ".join(f"-C link-arg=-Wl,-rpath,{folder}" for folder in folders))

    def setup_run_environment(self, env):
        env.set("SKT_HPL_BLAS", self.spec["blas"].libs[0])

    def check(self):
        """The tests need MPI's launcher and a checkout: scripts/test."""

    @run_after("install")
    def install_studies_and_documents(self):
        # A package of its own in the workspace.
        studies = ("--path", "crates/skt-studies", "--target-dir", "target")
        which("cargo")("install", "--locked", "--no-track", "--root", self.prefix, *studies)
        manual = ("--release", "--locked", "--target-dir", "target", "-p", "skt-manual")
        which("cargo")("run", *manual, "--", self.prefix.share)
        install_tree("hpl-configs", join_path(self.prefix.share, "skt-hpl"))
        if self.spec.satisfies("+xhpl"):
            symlink("skt-hpl", self.prefix.bin.xhpl)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        # Without mpirun, which Open MPI refuses to root, as in a container.
        report = Executable(self.prefix.bin.join("skt-hpl"))("--n", "100", output=str)
        if "1 tests completed and passed" not in report:
            raise InstallError(f"skt-hpl did not pass its test:\n{report}")
