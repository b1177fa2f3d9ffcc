"""Breaks capture/*_cuda* in one place at a time; the tests on the host device must tell.

mutants.py BUILD_FOLDER [NUMBER...]: after a build of gpu_tests and host_device_tests there. Prints a
line for each mutant: which test found it. Exit code: the mutants that none found.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# (file, what stands there, what takes its place)
MUTANTS = [
    ("graph_cuda.cpp", "chain.wait(static_cast<CudaEvent*>(node.wait)->get());", ""),
    ("graph_cuda.cpp", "if (node.signal) chain.record(static_cast<CudaEvent*>(node.signal)->get());", ""),
    ("graph_cuda.cpp", "    last_ = node;\n", ""),
    ("graph_cuda.cpp", "cudaGraphLaunch(graph_.get(), stream_)", "cudaGraphLaunch(graph_.get(), nullptr)"),
    ("graph_cuda.cpp", "  if (ended_) return;\n  cudaGraph_t broken", "  return;\n  cudaGraph_t broken"),
    ("graph_cuda.cpp", "  C10_CUDA_CHECK(cudaEventRecord(done_->get(), stream_));\n", ""),
    ("graph_cuda.cpp", "  return false;\n", "  return true;\n"),
    ("graph_cuda.cpp", "  cudaGetLastError();  // else", "  // else"),
    ("graph_cuda.cpp", "  C10_CUDA_CHECK(result);\n  ended_ = true;", "  ended_ = true;"),
    ("graph_cuda.cpp", "marks_[i]->get(), marks_[i + 1]->get()", "marks_[i + 1]->get(), marks_[i]->get()"),
    ("graph_cuda.cpp", "  const c10::cuda::CUDAGuard on_device(device_);\n  done_", "  done_"),
    ("pool_cuda.cpp", "  host_half().begin_allocate_to_pool(id_, [](c10::Stream) { return false; });  // counts, too\n"
                      "  host_half().end_allocate_to_pool(id_);\n", ""),
    ("pool_cuda.cpp", "  device_half::createOrIncrefPool(device_, id_);\n", ""),
    ("pool_cuda.cpp", "  host_half().end_allocate_to_pool(pool_.id_);\n", ""),
    ("pool_cuda.cpp", "  device_half::endAllocateToPool(pool_.device_, pool_.id_);\n", ""),
    ("pool_cuda.cpp", "  device_half::releasePool(pool_.device_, pool_.id_);\n", ""),
    ("pool_cuda.cpp", "{ return other == mine; });\n  host_half", "{ return false; });\n  host_half"),
    ("stream_cuda.cpp", "        C10_CUDA_CHECK(cudaDeviceSynchronize());\n", ""),
    ("stream_cuda.cpp", "pools_.try_emplace(pool, device_)", "pools_.try_emplace(0, device_)"),
    ("stream_cuda.cpp", "  OneThread() { state().set_multithreading_enabled(false); }", "  OneThread() {}"),
    ("stream_cuda.cpp", "cudaMemcpyDefault, own_.get()", "cudaMemcpyDefault, nullptr"),
    ("stream_cuda.cpp", "  void synchronize() override { stream_.synchronize(); }", "  void synchronize() override {}"),
    ("stream_cuda.cpp", "    const c10::cuda::CUDAStreamGuard on_stream(stream_);\n", ""),
    ("stream_cuda.cpp", "  return at::cuda::get_p2p_access(device.index(), other.index());", "  return true;"),
    ("stream_cuda.cpp", "  ~CudaStream() override { cudaStreamSynchronize(own_.get()); }", "  ~CudaStream() override {}"),
    ("eager_cuda.cpp", "    stream_.synchronize();\n  }\n", "  }\n"),
    ("eager_cuda.cpp", "    C10_CUDA_CHECK(cudaDeviceSynchronize());\n", ""),
    ("partition_cuda.cpp", "    next += share;\n", ""),
    ("partition_cuda.cpp", "  driver().destroy_context(context);\n", "  driver().destroy_context(context);\n  driver().destroy_context(context);\n"),
]

# (program, filter, environment): the cheap and sharp ones first.
TESTS = [
    ("gpu/gpu_tests", "BackendTest.*:*Partitions*", {"HOST_DEVICE_DELAY_US": "500"}),
    ("host_device/host_device_tests", "*TwoDevices*", {"HOST_DEVICE_COUNT": "2", "HOST_DEVICE_DELAY_US": "500"}),
    ("host_device/host_device_tests", "*TwoDevices*", {"HOST_DEVICE_COUNT": "2", "HOST_DEVICE_PEERS": "0"}),
    ("gpu/gpu_tests", "*AlikeToTheBit*partime*:GpuStep.Alloc*:GpuStep.Modules*", {"HOST_DEVICE_DELAY_US": "500"}),
    ("host_device/host_device_tests", "Recorded.APred*:Recorded.ACheck*:LateGraphs.*", {"HOST_DEVICE_DELAY_US": "300"}),
    ("host_device/host_device_tests", "*Failures*/memory", {}),
]


def compiled(build, source, text):
    """The object of a source with `text` in its place."""
    command = next(c for c in json.loads((build / "compile_commands.json").read_text())
                   if c["file"].endswith("/capture/" + source))
    changed = build / "mutant" / source
    changed.parent.mkdir(exist_ok=True)
    changed.write_text(text)
    words = command["command"].replace(command["file"], str(changed)).split()
    out = words.index("-o")
    words[out + 1] = str(changed) + ".o"
    subprocess.run(words, cwd=command["directory"], check=True, capture_output=True)
    return changed.with_suffix(".cpp.o")


def linked(build, program, mutant):
    """The program with the mutant's object before all libraries."""
    lines = subprocess.run(["ninja", "-t", "commands", "-s", f"tests/{program}"], cwd=build, check=True,
                           capture_output=True, text=True).stdout.strip().splitlines()
    command = lines[-1].split("&&")[1].strip()
    to = build / "mutant" / program.split("/")[1]
    subprocess.run(command.replace(f"-o tests/{program}", f"{mutant} -o {to}"), shell=True, cwd=build, check=True)
    return to


def found_by(build, mutant):
    preload = ":".join(str(build / "tests/host_device" / name) for name in
                       ["libhost_device.so", "libhost_device_driver.so", "libhost_device_operators.so"])
    programs = {}
    for program, cases, settings in TESTS:
        if program not in programs:
            programs[program] = linked(build, program, mutant)
        try:
            run = subprocess.run([programs[program], f"--gtest_filter={cases}"], capture_output=True, text=True, timeout=120,
                                 env={**os.environ, "LD_PRELOAD": preload, "OMP_NUM_THREADS": "1", **settings})
        except subprocess.TimeoutExpired:
            return f"{cases}: never ends"
        if run.returncode:
            said = [line for line in (run.stdout + run.stderr).splitlines() if "FAILED  ]" in line or "VIOLATION" in line]
            return f"{cases}: {said[0][:110] if said else f'exit code {run.returncode}'}"
    return None


def main(build, *numbers):
    survivors = 0
    for number, (source, old, new) in enumerate(MUTANTS, 1):
        if numbers and str(number) not in numbers:
            continue
        text = (ROOT / "capture" / source).read_text()
        if old not in text:
            print(f"{number:2} {source}: no such place: {old[:60]!r}", flush=True)
            survivors += 1
            continue
        found = found_by(build, compiled(build, source, text.replace(old, new, 1)))
        survivors += found is None
        print(f"{number:2} {source} {' '.join(old.split())[:60]!r}: {found or 'NOT FOUND'}", flush=True)
    return survivors


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
