// Preloaded into the program, so that tests load LibTorch once: it waits for requests instead of
// running main(), and answers each with a fork that runs main() with the request's words.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
Main program;

/// Forks twice, so that the program becomes a child of the test, which is a subreaper. A request
/// holds the files of the three standard streams, the working directory and argv, each ended by a
/// NUL.
int serve(int, char**, char** environment) {
  const int socket = std::atoi(std::getenv("MILLRACE_FORK_SERVER"));
  unsetenv("MILLRACE_FORK_SERVER");
  unsetenv("LD_PRELOAD");
  auto* pid = static_cast<volatile pid_t*>(
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  static char text[1 << 20];
  for (ssize_t size; (size = read(socket, text, sizeof text)) > 0;) {
    std::vector<char*> words;
    for (char* at = text; at < text + size; at += std::strlen(at) + 1) words.push_back(at);
    words.push_back(nullptr);
    int streams[3];
    for (int i = 0; i < 3; ++i)
      streams[i] = open(words[i], (i == 0 ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
    const pid_t between = fork();
    if (between == 0) {
      const pid_t child = fork();
      if (child == 0) {
        close(socket);
        for (int i = 0; i < 3; ++i) dup2(streams[i], i);
        if (chdir(words[3]) != 0) return 126;
        return program(int(words.size()) - 5, words.data() + 4, environment);
      }
      *pid = child;
      _exit(0);
    }
    waitpid(between, nullptr, 0);
    for (const int stream : streams) close(stream);
    const pid_t started = *pid;
    if (write(socket, &started, sizeof started) != sizeof started) break;
  }
  _exit(0);
}

}  // namespace

extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  program = main;
  return start(std::getenv("MILLRACE_FORK_SERVER") ? serve : main, argc, argv, init, fini,
               rtld_fini, stack_end);
}
