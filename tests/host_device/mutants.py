"""Breaks capture/*_cuda* in one place at a time; the tests on the host device must tell.

mutants.py BUILD_FOLDER [NUMBER...]: after a build of gpu_tests and host_device_tests there. All mutants
are compiled into the sources at once, and MUTANT=n in the environment wakes one. Prints a line for
each: which test found it. Exit code: the mutants that none found.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# File: (what stands there, what takes its place). M: this mutant is awake.
MUTANTS = {
    "graph_cuda.cpp": [
        ("chain.wait(static_cast<CudaEvent*>(node.wait)->get());", "if (!M) chain.wait(static_cast<CudaEvent*>(node.wait)->get());"),
        ("if (node.signal) chain.record", "if (node.signal && !M) chain.record"),
        ("before_ = {node};", "if (!M) before_ = {node};"),
        ("cudaGraphLaunch(graph_.get(), stream_)", "cudaGraphLaunch(graph_.get(), M ? nullptr : stream_)"),
        ("if (ended_) return;", "if (ended_ || M) return;"),
        ("C10_CUDA_CHECK(cudaEventRecord(done_", "if (!M) C10_CUDA_CHECK(cudaEventRecord(done_"),
        ("return false;", "return M;"),
        ("cudaGetLastError();  // else", "if (!M) cudaGetLastError();  // else"),
        ("C10_CUDA_CHECK(result);", "if (!M) C10_CUDA_CHECK(result);"),
        ("marks_[i]->get(), marks_[i + 1]->get()", "marks_[i + M]->get(), marks_[i + !M]->get()"),
        ("const c10::cuda::CUDAGuard on_device(device_);\n  done_", "const c10::cuda::CUDAGuard on_device(M ? c10::Device(c10::kCUDA, 0) : device_);\n  done_"),
        ("const c10::cuda::CUDAGuard on_device(device_);\n  C10_CUDA_CHECK(cudaGraphLaunch", "const c10::cuda::CUDAGuard on_device(M ? c10::Device(c10::kCUDA, 0) : device_);\n  C10_CUDA_CHECK(cudaGraphLaunch"),
    ],
    "pool_cuda.cpp": [
        ("host_half().begin_allocate_to_pool(id_, [](c10::Stream) { return false; });  // counts, too\n  host_half().end_allocate_to_pool(id_);",
         "if (!M) { host_half().begin_allocate_to_pool(id_, [](c10::Stream) { return false; }); host_half().end_allocate_to_pool(id_); }"),
        ("host_half().release_pool(id_);", "if (!M) host_half().release_pool(id_);"),
        ("device_half::createOrIncrefPool(device_, id_);", "if (!M) device_half::createOrIncrefPool(device_, id_);"),
        ("device_half::releasePool(device_, id_);", "if (!M) device_half::releasePool(device_, id_);"),
        ("host_half().end_allocate_to_pool(pool_.id_);", "if (!M) host_half().end_allocate_to_pool(pool_.id_);"),
        ("device_half::endAllocateToPool(", "if (!M) device_half::endAllocateToPool("),
        ("device_half::releasePool(pool_.device_, pool_.id_);", "if (!M) device_half::releasePool(pool_.device_, pool_.id_);"),
        ("(cudaStream_t other) { return other == mine; }", "(cudaStream_t other) { return other == mine && !M; }"),
    ],
    "stream_cuda.cpp": [
        ("C10_CUDA_CHECK(cudaDeviceSynchronize());", "if (!M) C10_CUDA_CHECK(cudaDeviceSynchronize());"),
        ("pools_.try_emplace(pool, device_)", "pools_.try_emplace(M ? 0 : pool, device_)"),
        ("cudaMemcpyDefault, own_.get()", "cudaMemcpyDefault, M ? nullptr : own_.get()"),
        ("void synchronize() override { stream_.synchronize(); }", "void synchronize() override { if (!M) stream_.synchronize(); }"),
        ("const c10::cuda::CUDAStreamGuard on_stream(stream_);",
         "const c10::cuda::CUDAStreamGuard on_stream(M ? c10::cuda::getDefaultCUDAStream(device_.index()) : stream_);"),
        ("c10::cuda::CUDACachingAllocator::emptyCache();", "if (!M) c10::cuda::CUDACachingAllocator::emptyCache();"),
    ],
    "eager_cuda.cpp": [
        ("    stream_.synchronize();\n  }\n", "    if (!M) stream_.synchronize();\n  }\n"),
        ("C10_CUDA_CHECK(cudaDeviceSynchronize());", "if (!M) C10_CUDA_CHECK(cudaDeviceSynchronize());"),
    ],
    "wire_cuda.cpp": [
        (".wait = sends_ ? ready : nullptr", ".wait = sends_ && !M ? ready : nullptr"),
        (".signal = sends_ ? nullptr : ready", ".signal = sends_ || M ? nullptr : ready"),
        ("graphs_[std::size_t(slot)]->launch();", "graphs_[M ? 0 : std::size_t(slot)]->launch();"),
        ("++moves_;", "moves_ += !M;"),
        ("if (comm_) cutting_ =", "if (comm_ && !M) cutting_ ="),
        ("    graphs_.clear();\n", "    if (!M) graphs_.clear();\n"),
        ("comm_ = nullptr;\n", "if (!M) comm_ = nullptr;\n"),
        ("      stream_->synchronize();\n", "      if (!M) stream_->synchronize();\n"),
    ],
}

GPU, OWN = "gpu/gpu_tests", "host_device/host_device_tests"
LATE = {"HOST_DEVICE_DELAY_US": "500"}
# (program, filter, environment): the cheap and sharp ones first.
TESTS = [
    (GPU, "BackendTest.*", LATE),
    (GPU, "*TwoDevices*", {"HOST_DEVICE_COUNT": "2", **LATE}),
    (GPU, "*TwoDevices*", {"HOST_DEVICE_COUNT": "2", "HOST_DEVICE_PEERS": "0"}),
    (OWN, "Memory.*:Recorded.A*:LateGraphs.*", LATE),
    (GPU, "*AlikeToTheBit*partime*:GpuStep.Alloc*:GpuStep.Modules*", LATE),
    (OWN, "Wires.*", {"HOST_DEVICE_COUNT": "2", **LATE}),
    (OWN, "*Failures*/memory", {}),
]


def compiled(build, source, text):
    """The object of a source with `text` in its place."""
    command = next(c for c in json.loads((build / "compile_commands.json").read_text())
                   if c["file"].endswith("/capture/" + source))
    changed = build / "mutants" / source
    changed.parent.mkdir(exist_ok=True)
    changed.write_text(text)
    words = command["command"].replace(command["file"], str(changed)).split()
    words[words.index("-o") + 1] = f"{changed}.o"
    subprocess.run(words, cwd=command["directory"], check=True)
    return f"{changed}.o"


def linked(build, program, objects):
    """The program with these objects before all libraries."""
    lines = subprocess.run(["ninja", "-t", "commands", "-s", f"tests/{program}"], cwd=build, check=True,
                           capture_output=True, text=True).stdout.strip().splitlines()
    command = lines[-1].split("&&")[1].strip()
    to = build / "mutants" / program.split("/")[1]
    subprocess.run(command.replace(f"-o tests/{program}", f"{' '.join(objects)} -o {to}"), shell=True, cwd=build, check=True)
    return to


def found_by(build, programs, number):
    preload = ":".join(str(build / "tests/host_device" / name) for name in
                       ["libhost_device.so", "libhost_device_driver.so", "libhost_device_operators.so"])
    for program, cases, settings in TESTS:
        environment = {**os.environ, "LD_PRELOAD": preload, "OMP_NUM_THREADS": "1", "MUTANT": str(number), **settings}
        try:
            run = subprocess.run([programs[program], f"--gtest_filter={cases}"], capture_output=True, text=True,
                                 timeout=150, env=environment)
        except subprocess.TimeoutExpired:
            return f"{cases}: does not end"
        if run.returncode:
            said = [line for line in (run.stdout + run.stderr).splitlines() if "FAILED  ]" in line or "VIOLATION" in line]
            return f"{cases}: {said[0][:110] if said else f'exit code {run.returncode}'}"
    return None


def main(build, *numbers):
    places, objects = [], []
    for source, changes in MUTANTS.items():
        text = (ROOT / "capture" / source).read_text()
        for old, new in changes:
            assert old in text, (source, old)
            places.append((source, old))
            text = text.replace(old, re.sub(r"\bM\b", f"mutant({len(places)})", new), 1)
        awake = ("#include <cstdlib>\nstatic bool mutant(int n) {\n  static const char* const awake = std::getenv(\"MUTANT\");\n"
                 "  return awake && std::atoi(awake) == n;\n}\n")
        objects.append(compiled(build, source, awake + text))
    programs = {program: linked(build, program, objects) for program in (GPU, OWN)}
    if (sound := found_by(build, programs, 0)) is not None:
        sys.exit(f"without a mutant: {sound}")
    survivors = 0
    for number, (source, old) in enumerate(places, 1):
        if numbers and str(number) not in numbers:
            continue
        found = found_by(build, programs, number)
        survivors += found is None
        print(f"{number:2} {source} {' '.join(old.split())[:60]!r}: {found or 'NOT FOUND'}", flush=True)
    return survivors


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
