#include "tools/app/launched.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tools/app/config/config.h"

namespace millrace::app {
namespace {

/// The number of processes by the launcher's variables: Open MPI's, or PMI's.
int launched_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* const size = std::getenv(name)) return std::atoi(size);
  }
  // srun --mpi=pmix sets a rank, but the number of tasks only in SLURM's own variable.
  const char* const tasks = std::getenv("PMIX_RANK") ? std::getenv("SLURM_NTASKS") : nullptr;
  return tasks ? std::atoi(tasks) : 1;
}

}  // namespace

std::unique_ptr<engine::Exchange> launched_ranks() {
  const int processes = launched_processes();
  if (processes <= 1) return nullptr;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  std::string why;
  for (const char* folder : {".", "../lib/millrace"}) {
    const std::string file = program.parent_path() / folder / "libmillrace_mpi.so";
    // MPI's own plug-ins look its symbols up globally.
    void* const module = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!module) {
      if (why.empty()) why = dlerror();
      continue;
    }
    using Make = engine::Exchange* (*)();
    const auto make = reinterpret_cast<Make>(dlsym(module, "millrace_make_exchange"));
    if (make) return std::unique_ptr<engine::Exchange>(make());
  }
  throw ConfigError(std::to_string(processes) +
                    " processes were launched, but this build has no MPI: " + why);
}

}  // namespace millrace::app
