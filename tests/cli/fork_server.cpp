// Preloaded into the program, so that tests load LibTorch once: it waits for requests instead of
// running main(), and answers each with a fork that runs main() with the request's words.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
Main program;

/// A request: the working directory and argv, each ended by a NUL, and the three standard streams.
struct Request {
  char text[1 << 20];
  ssize_t size = 0;
  int streams[3];
};

bool receive(int socket, Request& request) {
  iovec data{request.text, sizeof request.text};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof request.streams)];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  request.size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (request.size <= 0 || header == nullptr) return false;
  std::memcpy(request.streams, CMSG_DATA(header), sizeof request.streams);
  return true;
}

int answer(Request& request, char** environment) {
  for (int stream = 0; stream < 3; ++stream) dup2(request.streams[stream], stream);
  std::vector<char*> words;
  for (char* at = request.text; at < request.text + request.size; at += std::strlen(at) + 1)
    words.push_back(at);
  if (chdir(words[0]) != 0) return 126;
  words.push_back(nullptr);
  return program(int(words.size()) - 2, words.data() + 1, environment);
}

/// Forks twice, so that the program becomes a child of the test, which is a subreaper.
int serve(int, char**, char** environment) {
  const int socket = std::atoi(std::getenv("MILLRACE_FORK_SERVER"));
  unsetenv("MILLRACE_FORK_SERVER");
  unsetenv("LD_PRELOAD");
  auto* pid = static_cast<volatile pid_t*>(
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  static Request request;
  while (receive(socket, request)) {
    const pid_t between = fork();
    if (between == 0) {
      const pid_t child = fork();
      if (child == 0) {
        close(socket);
        return answer(request, environment);
      }
      *pid = child;
      _exit(0);
    }
    waitpid(between, nullptr, 0);
    for (const int stream : request.streams) close(stream);
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
