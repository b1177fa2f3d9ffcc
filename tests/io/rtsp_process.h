// The tests' RTSP server as a process that can be killed, frozen and restarted.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::io {

/// Serves from its construction to its destruction. Thread-bound.
class RtspProcess {
 public:
  /// `options`: words for the server, see rtsp_server.cpp.
  explicit RtspProcess(std::vector<std::string> options = {}) : options_(std::move(options)) {
    start();
  }
  ~RtspProcess() { kill(); }
  RtspProcess(const RtspProcess&) = delete;
  RtspProcess& operator=(const RtspProcess&) = delete;

  std::string uri(const std::string& path) const {
    return "rtsp://127.0.0.1:" + std::to_string(port_) + path;
  }

  void freeze() { ::kill(pid_, SIGSTOP); }
  void thaw() { ::kill(pid_, SIGCONT); }
  /// Without warning.
  void kill() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(stdin_);
    pid_ = -1;
  }
  /// On the same port; returns when it listens.
  void restart(std::vector<std::string> options = {}) {
    kill();
    options_ = std::move(options);
    start();
  }

 private:
  void start() {
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
      throw std::runtime_error("no pipes");
    }
    std::vector<std::string> words = options_;
    words.insert(words.begin(), {MILLRACE_RTSP_SERVER, "port=" + std::to_string(port_)});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    stdin_ = in[1];
    std::FILE* const answer = ::fdopen(out[0], "r");
    const bool told = std::fscanf(answer, "%d", &port_) == 1;
    std::fclose(answer);
    if (!told) throw std::runtime_error("the RTSP server did not start");
  }

  std::vector<std::string> options_;
  int port_ = 0;  // any free one the first time
  pid_t pid_ = -1;
  int stdin_ = -1;
};

}  // namespace millrace::io
