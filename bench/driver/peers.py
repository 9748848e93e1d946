"""Who is measured: each peer knows what it needs, how to build its programs and how to tell its version.

To add a peer: a folder in bench/peers/ with a program that understands `NAME --procs N [--quick]` and `--list` and
prints the same lines of JSON, and a class here that is named in PEERS.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FETCHED = ROOT / "build" / "bench-peers" / "fetched"  # what `./dev bench fetch` has brought; nothing else downloads
PRESET = "release"


class BuildError(Exception):
    pass


def build_step(command, cwd=ROOT, env=None):
    """Runs one step of a build; its output is shown only when it fails."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}".rstrip())


def output_of(command, cwd=ROOT):
    """Empty if the program fails or is not there: a bare system has no git."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


class Program:
    """An executable and its workloads: `--list` prints NAME, or `NAME P=1` for what it has for one processor only."""

    def __init__(self, path):
        self.path = path
        listed = [line.split() for line in output_of([path, "--list"]).splitlines()]
        self.workloads = frozenset(words[0] for words in listed)
        self.one_processor_only = frozenset(words[0] for words in listed if words[1:] == ["P=1"])

    def runs_with(self, workload, procs):
        return workload in self.workloads and (procs == 1 or workload not in self.one_processor_only)

    def name_of(self, workload):
        """How the program itself calls it."""
        return workload


class OtherForms(Program):
    """A program whose other forms of some workloads stand in for those workloads: {workload: form}."""

    def __init__(self, program, forms):
        there = {workload: form for workload, form in forms.items() if form in program.workloads}
        self.path = program.path
        self.forms = there
        self.workloads = frozenset(there)
        self.one_processor_only = frozenset(w for w, form in there.items() if form in program.one_processor_only)

    def name_of(self, workload):
        return self.forms[workload]


class Dunlin:
    name = "dunlin"
    procs_variable = "DUNLIN_MAXPROCS"
    environment = {}
    target = "bench"

    def missing(self):
        """None, or what is missing and how to get it, in one line."""
        if shutil.which("cmake") is None:
            return "no `cmake` in PATH (Debian: apt-get install cmake ninja-build g++)"
        return None

    def build(self, say):
        build_dir = self._build_dir()
        say(f"building {self.name} (preset {PRESET}, target {self.target})")
        build_step(["cmake", "--preset", PRESET])
        build_step(["cmake", "--build", build_dir, "--target", self.target])

    def programs(self):
        path = self._build_dir() / "bench" / "dunlin_bench"
        if not path.is_file():
            return []
        program = Program(path)
        if not (self._build_dir() / "examples" / "example_http_server").is_file():  # it needs Boost.Beast
            program.workloads -= {"http-hello"}
        return [program]

    def version(self):
        commit = output_of(["git", "describe", "--always", "--tags", "--abbrev=10", "--dirty=+changes"]) or "no git"
        cache = self._cmake_cache()
        compiler = cache.get("CMAKE_CXX_COMPILER", "")
        compiler_version = output_of([compiler, "--version"]).partition("\n")[0] if compiler else "compiler not known"
        build_type = cache.get("CMAKE_BUILD_TYPE", "")
        flags = f"{cache.get('CMAKE_CXX_FLAGS', '')} {cache.get('CMAKE_CXX_FLAGS_' + build_type.upper(), '')}".split()
        return f"{commit}; {compiler_version}; {' '.join(flags)}"

    def _build_dir(self):
        presets = {}
        for name in ("CMakePresets.json", "CMakeUserPresets.json"):
            if (ROOT / name).is_file():
                listed = json.loads((ROOT / name).read_text()).get("configurePresets", [])
                presets.update({preset["name"]: preset for preset in listed})
        if PRESET not in presets:
            raise BuildError(f"CMakePresets.json has no preset {PRESET!r}")
        directory = self._inherited(presets, PRESET, "binaryDir")
        if directory is None:
            raise BuildError(f"preset {PRESET!r} has no binaryDir")
        return Path(directory.replace("${sourceDir}", str(ROOT)).replace("${presetName}", PRESET))

    def _inherited(self, presets, name, key):
        preset = presets.get(name, {})
        if key in preset:
            return preset[key]
        parents = preset.get("inherits", [])
        found = (self._inherited(presets, p, key) for p in ([parents] if isinstance(parents, str) else parents))
        return next((value for value in found if value is not None), None)

    def _cmake_cache(self):
        cache = self._build_dir() / "CMakeCache.txt"
        if not cache.is_file():
            return {}
        return dict(re.findall(r"^([\w-]+):\w+=(.*)$", cache.read_text(), re.MULTILINE))


class Go:
    built = False  # by this process, for whichever of the peers that share it
    name = "go"
    procs_variable = "GOMAXPROCS"
    environment = {}
    source = ROOT / "bench" / "peers" / "go"
    plain = ROOT / "build" / "bench-peers" / "go_bench"
    with_cgo = ROOT / "build" / "bench-peers" / "go_bench_cgo"
    empty = ROOT / "build" / "bench-peers" / "go_empty"  # what start-up runs

    def missing(self):
        if shutil.which("go") is None:
            return "no `go` in PATH (https://go.dev/dl, or Debian: apt-get install golang-go)"
        return None

    def build(self, say):
        if Go.built:
            return
        Go.built = True
        say("building go")
        self.plain.parent.mkdir(parents=True, exist_ok=True)
        # Local: a benchmark must not fetch another tool-chain than the one it is said to measure.
        env = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
        build_step(["go", "build", "-ldflags=-s -w", "-o", self.empty, "./empty"], self.source, {**env, "CGO_ENABLED": "0"})
        build_step(["go", "build", "-o", self.plain, "."], self.source, {**env, "CGO_ENABLED": "0"})
        try:
            build_step(["go", "build", "-o", self.with_cgo, "."], self.source, {**env, "CGO_ENABLED": "1"})
        except BuildError:
            self.with_cgo.unlink(missing_ok=True)
            say("go: no C compiler for cgo (Debian: apt-get install gcc); the workloads that need it are left out")

    def programs(self):
        # The first that has a workload runs it, so only what the plain one lacks is run with cgo.
        return [Program(path) for path in (self.plain, self.with_cgo) if path.is_file()]

    def version(self):
        return output_of(["go", "version"]).removeprefix("go version ")


class GoWithRareCollections(Go):
    """Go where it may use four times as much memory between collections as by default."""

    name = "go-gogc400"
    environment = {"GOGC": "400"}
    where = ("spawn-million", "fib", "skynet", "skynet-tg", "nqueens", "alloc-churn")  # it allocates much there

    def programs(self):
        return [OtherForms(program, {name: name for name in self.where}) for program in super().programs()]

    def version(self):
        return f"{super().version()}, GOGC=400"


class Fasthttp(Go):
    """Go's usual web server where net/http is too slow: its distribution's package, or what was fetched."""

    name = "fasthttp"
    program = ROOT / "build" / "bench-peers" / "go_bench_fasthttp"
    module = "github.com/valyala/fasthttp"
    modules = FETCHED / "go" / "go.mod"
    distribution = Path("/usr/share/gocode")

    def missing(self):
        if super().missing() or self.modules.is_file() or (self.distribution / "src" / self.module).is_dir():
            return super().missing()
        return "no fasthttp (Debian: apt-get install golang-github-valyala-fasthttp-dev; a current one: ./dev bench fetch)"

    def build(self, say):
        say(f"building {self.name}")
        self.program.parent.mkdir(parents=True, exist_ok=True)
        command = ["go", "build", "-tags=fasthttp", "-o", self.program]
        env = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off", "GOPROXY": "off", "CGO_ENABLED": "0"}
        if self.modules.is_file():
            build_step([*command, f"-modfile={self.modules}", "."], self.source, env)
        else:
            build_step([*command, "."], self.source, {**env, "GO111MODULE": "off", "GOPATH": str(self.distribution)})

    def programs(self):
        return [OtherForms(Program(self.program), {"http-hello": "http-hello-fasthttp"})] if self.program.is_file() else []

    def version(self):
        used = re.search(rf"{self.module} (\S+)", self.modules.read_text()) if self.modules.is_file() else None
        return f"fasthttp {used.group(1) if used else 'of the distribution'}; {super().version()}"

    def fetch(self, say):
        """The newest of its modules that the Go tool finds."""
        say(f"fetching {self.module}")
        self.modules.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.source / "go.mod", self.modules)
        env = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
        build_step(["go", "get", f"-modfile={self.modules}", f"{self.module}@latest"], self.source, env)


class Tokio:
    """Tokio, from the distribution's packages of crates; or, to measure another version, from a folder of `cargo vendor`."""

    built = set()  # as Go's
    name = "tokio"
    procs_variable = "TOKIO_WORKER_THREADS"
    environment = {}
    source = ROOT / "bench" / "peers" / "rust"
    target = ROOT / "build" / "bench-peers" / "rust"
    program = target / "release" / "rust_bench"
    crates = Path(os.environ.get("DUNLIN_BENCH_CRATES", "/usr/share/cargo/registry")).resolve()
    needed = {"tokio": (1, 24), "async-channel": (1, 8), "parking_lot": (0, 12)}  # crates, and from which version on

    def missing(self):
        if shutil.which("cargo") is None:
            return "no `cargo` in PATH (Debian: apt-get install cargo)"
        lacking = [f"librust-{crate.replace('_', '-')}-dev" for crate, oldest in self.needed.items() if not self._has(crate, oldest)]
        if lacking:
            wanted = ", ".join(f"{crate} {'.'.join(map(str, oldest))}" for crate, oldest in self.needed.items())
            return f"{self.crates} lacks one of {wanted} (Debian 12 and later: apt-get install {' '.join(lacking)})"
        return None

    def build(self, say):
        if self.target in Tokio.built:
            return
        Tokio.built.add(self.target)
        say(f"building {self.name}")
        # Without a lock file of ours: whichever version is there is the one that is measured.
        (self.source / "Cargo.lock").unlink(missing_ok=True)
        # The name of .cargo/config.toml, whose folder this replaces: cargo refuses two sources with the same folder.
        source = ["--config", 'source.crates-io.replace-with="distribution"',
                  "--config", f'source.distribution.directory="{self.crates}"']
        command = ["cargo", "build", "--release", "--offline", *source, "--target-dir", self.target]
        build_step(command, self.source, {"RUSTFLAGS": ""})
        build_step(["strip", self.program.with_name("rust_empty")])  # as the others' that start-up runs

    def programs(self):
        return [Program(self.program)] if self.program.is_file() else []

    def version(self):
        lock = self.source / "Cargo.lock"
        locked = dict(re.findall(r'^name = "(.*)"\nversion = "(.*)"$', lock.read_text(), re.MULTILINE)) if lock.is_file() else {}
        crates = ", ".join(f"{crate} {locked.get(crate, 'of unknown version')}" for crate in self.needed)
        return f"{crates}; {output_of(['rustc', '--version'])}"

    def _has(self, crate, oldest):
        found = (re.fullmatch(rf"{crate}-(\d+)\.(\d+)\..*", folder.name) for folder in self.crates.glob(f"{crate}-*"))
        return any(tuple(map(int, version.groups())) >= oldest for version in found if version)


class TokioOtherForms(Tokio):
    """What Tokio's documentation recommends where it fits: std's mutex if nothing is awaited under it, and the runtime
    with one thread for a program that needs one."""

    name = "tokio-other"
    forms = {"mutex": "mutex-std", "mutex-8": "mutex-8-std", "spawn-million": "spawn-million-current-thread"}

    def programs(self):
        return [OtherForms(program, self.forms) for program in super().programs()]


class TokioParkingLot(TokioOtherForms):
    """The other mutex that Tokio's documentation names."""

    name = "tokio-parking_lot"
    forms = {"mutex": "mutex-parking-lot", "mutex-8": "mutex-8-parking-lot"}


def find_library(name):
    """The path of a shared library that is not linked with, or None."""
    found = Path(output_of([os.environ.get("CC", "cc"), f"-print-file-name={name}"]) or name)
    return found if found.is_absolute() else None


class TokioMimalloc(TokioOtherForms):
    """Tokio with an allocator for many small things, which is loaded in front of libc's, and with one thread where P is 1."""

    name = "tokio-mimalloc"
    forms = {"spawn-million": "spawn-million-lightest", "alloc-churn": "alloc-churn"}

    @property
    def environment(self):
        return {"LD_PRELOAD": str(find_library("libmimalloc.so"))}

    def missing(self):
        if find_library("libmimalloc.so") is None:
            return super().missing() or "no libmimalloc.so (Debian: apt-get install libmimalloc-dev)"
        return super().missing()

    def version(self):
        return f"{super().version()}; {find_library('libmimalloc.so').resolve().name}"


class TokioNow(Tokio):
    """The crates that the registry had when they were fetched: Tokio, and hyper as its web server."""

    name = "tokio-now"
    source = ROOT / "bench" / "peers" / "rust" / "current"
    target = ROOT / "build" / "bench-peers" / "rust-current"
    program = target / "release" / "rust_bench"
    crates = FETCHED / "crates"
    needed = {**Tokio.needed, "hyper": (1, 0), "hyper-util": (0, 1), "http-body-util": (0, 1)}

    def missing(self):
        if self.crates.is_dir():
            return super().missing()
        return "no current crates (./dev bench fetch downloads them from the registry of Rust)"

    def fetch(self, say):
        """The newest crates that cargo finds."""
        if shutil.which("cargo") is None:
            raise BuildError("no `cargo` in PATH (Debian: apt-get install cargo)")
        say("fetching tokio, hyper and what they need")
        shutil.rmtree(self.crates, ignore_errors=True)
        (self.source / "Cargo.lock").unlink(missing_ok=True)
        self.crates.parent.mkdir(parents=True, exist_ok=True)
        # From a folder above bench/peers/rust, whose settings put the distribution's crates in the place of the registry's.
        build_step(["cargo", "vendor", "--versioned-dirs", "--manifest-path", self.source / "Cargo.toml", self.crates])


class TokioNowParkingLot(TokioNow, TokioParkingLot):
    name = "tokio-now-parking_lot"


class TokioNowOtherForms(TokioNow, TokioOtherForms):
    name = "tokio-now-other"


class TokioNowMimalloc(TokioNow, TokioMimalloc):
    name = "tokio-now-mimalloc"


def _compile_c(sources, output, *libraries):
    output.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra"]
    build_step([os.environ.get("CC", "cc"), *flags, *sorted(sources.glob("*.c")), "-o", output, *libraries])


class C:
    """Servers and loops straight on the system's calls, for the workloads of the network."""

    name = "c"
    procs_variable = "DUNLIN_BENCH_UNUSED"
    environment = {}
    source = ROOT / "bench" / "peers" / "c"
    program = ROOT / "build" / "bench-peers" / "c_bench"

    def missing(self):
        if shutil.which(os.environ.get("CC", "cc")) is None:
            return "no `cc` in PATH (Debian: apt-get install gcc)"
        return None

    def build(self, say):
        say("building c")
        _compile_c(self.source, self.program, "-lpthread")

    def programs(self):
        return [Program(self.program)] if self.program.is_file() else []

    def version(self):
        return output_of([os.environ.get("CC", "cc"), "--version"]).partition("\n")[0]


class Cpp(Dunlin):
    """Another runtime in C++: a program of bench/peers/cpp, built as dunlin's is and not linked with dunlin."""

    procs_variable = "DUNLIN_BENCH_UNUSED"

    def __init__(self, name, source, header, package, library=None):
        self.name = name
        self.target = f"bench_{source}"
        self.header = header
        self.package = package
        self.library = library

    def missing(self):
        needed = (("CLI/CLI.hpp", "libcli11-dev"), (self.header, self.package))
        lacking = (self._missing_header(header, package) for header, package in needed)
        return super().missing() or next(filter(None, lacking), None) or self._missing_library()

    def _missing_library(self):
        """Headers may be here without it. The compiler answers with the bare name if it does not find the file."""
        if self.library is None:
            return None
        file = f"lib{self.library}.so"
        found = output_of([os.environ.get("CXX", "g++"), f"-print-file-name={file}"])
        return None if found != file else f"no {file} (Debian: apt-get install {self.package})"

    def _missing_header(self, header, package):
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            return f"no `{compiler}` in PATH (Debian: apt-get install g++)"
        asked = f"#if !__has_include(<{header}>)\n#error\n#endif\n"
        done = subprocess.run([compiler, "-E", "-x", "c++", "-"], input=asked, capture_output=True, text=True)
        return None if done.returncode == 0 else f"no <{header}> (Debian: apt-get install {package})"

    def programs(self):
        path = self._build_dir() / "bench" / "peers" / "cpp" / self.target
        return [Program(path)] if path.is_file() else []

    def version(self):
        return output_of([self.programs()[0].path, "--version"])


class Load:
    """The program that every peer's servers are measured with; see bench/load."""

    source = ROOT / "bench" / "load"
    program = ROOT / "build" / "bench-peers" / "net_load"

    def build(self, say):
        say("building the load")
        _compile_c(self.source, self.program, "-lm")


LOAD = Load()
PEERS = (
    Dunlin(),
    C(),
    Go(),
    GoWithRareCollections(),
    Fasthttp(),
    Tokio(),
    TokioOtherForms(),
    TokioParkingLot(),
    TokioMimalloc(),
    TokioNow(),
    TokioNowOtherForms(),
    TokioNowParkingLot(),
    TokioNowMimalloc(),
    Cpp("asio", "asio", "boost/asio.hpp", "libboost-dev"),
    Cpp("boost.fiber", "boost_fiber", "boost/fiber/fiber.hpp", "libboost-fiber-dev", "boost_fiber"),
    Cpp("onetbb", "tbb", "tbb/task_group.h", "libtbb-dev", "tbb"),
    Cpp("threads", "threads", "thread", "g++"),
)
