// Exchange over MPI. A module, so that a run without mpirun never loads MPI.
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <list>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/pipeline/exchange.h"

namespace millrace::engine {
namespace {

void require(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw std::runtime_error(std::string(call) + ": " + std::string(text, std::size_t(length)));
}

/// Raises TCP's eager limit to 4 MiB unless the user set it: every port's receive is posted before
/// its send, so rendezvous would only add a round trip.
void send_at_once() {
  for (const char* limit : {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit",
                            "OMPI_MCA_btl_tcp_max_send_size"})
    setenv(limit, "4194304", 0);
}

/// Open MPI sends up to this many bytes eagerly by shared memory, gathered from any parts. Longer
/// messages are copied straight out of the sender's memory by the receiver if they are contiguous.
constexpr std::size_t kSmall = 2048;

MPI_Datatype type_of(std::span<const std::span<std::byte>> parts) {
  std::vector<int> lengths;
  std::vector<MPI_Aint> places;
  for (const std::span<std::byte> part : parts) {
    if (part.size() > std::size_t(std::numeric_limits<int>::max()))
      throw std::runtime_error("MPI takes no tensor of more than 2 GiB");
    lengths.push_back(int(part.size()));
    require(MPI_Get_address(part.data(), &places.emplace_back()), "MPI_Get_address");
  }
  MPI_Datatype type;
  require(
      MPI_Type_create_hindexed(int(parts.size()), lengths.data(), places.data(), MPI_BYTE, &type),
      "MPI_Type_create_hindexed");
  require(MPI_Type_commit(&type), "MPI_Type_commit");
  return type;
}

/// Groups consecutive small parts; each large part is a message by itself.
std::vector<std::span<const std::span<std::byte>>> messages_of(const Exchange::Parts& parts) {
  std::vector<std::span<const std::span<std::byte>>> messages;
  std::size_t bytes = 0;  // of the last message
  for (const std::span<std::byte>& part : parts) {
    if (messages.empty() || bytes + part.size() > kSmall) {
      messages.emplace_back(&part, 1);
      bytes = part.size();
    } else {
      messages.back() = {messages.back().data(), messages.back().size() + 1};
      bytes += part.size();
    }
  }
  return messages;
}

/// Ends the process when an MPI call does not return: Open MPI 4.1 loops forever if a peer is
/// killed while it is written to, and a thread cannot be stopped. Time in SIGSTOP does not count.
class CallWatch {
 public:
  class Call {
   public:
    explicit Call(CallWatch& watch) : watch_(watch) { watch_.step(); }
    ~Call() { watch_.step(); }
    Call(const Call&) = delete;

   private:
    CallWatch& watch_;
  };

 private:
  static constexpr std::chrono::milliseconds kLook{100};
  static constexpr int kLooks = 60;

  void step() { steps_.fetch_add(1, std::memory_order_relaxed); }
  void watch(const std::stop_token& over) {
    std::uint64_t seen = 0;
    for (int same = 0; !over.stop_requested(); std::this_thread::sleep_for(kLook)) {
      const std::uint64_t now = steps_.load(std::memory_order_relaxed);
      same = now % 2 != 0 && now == seen ? same + 1 : 0;
      seen = now;
      if (same < kLooks) continue;
      std::fputs("millrace: error: lost a rank: MPI does not return; the last checkpoint is kept\n",
                 stderr);
      std::_Exit(1);
    }
  }

  std::atomic<std::uint64_t> steps_ = 0;  ///< odd: in a call
  std::jthread thread_{[this](const std::stop_token& over) { watch(over); }};
};

/// Ports are persistent requests, set up once. MPI is called only under the mutex.
class MpiExchange final : public Exchange {
 public:
  MpiExchange() : abandoned_(std::make_shared<bool>(false)), watch_(std::make_shared<CallWatch>()) {
    send_at_once();
    int provided = 0;
    require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED)
      throw std::runtime_error("this MPI can't be called from several threads in turn");
    require(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "MPI_Comm_dup");
    complete();
  }
  MpiExchange(const MpiExchange& whole, int colour)
      : Exchange(whole), part_(true), abandoned_(whole.abandoned_), watch_(whole.watch_) {
    require(MPI_Comm_split(whole.all_, colour, whole.rank_, &all_), "MPI_Comm_split");
    complete();
  }
  ~MpiExchange() override {
    if (!part_ && !*abandoned_) MPI_Finalize();
  }
  void abandon() override { *abandoned_ = true; }
  std::unique_ptr<Exchange> part(int colour) override {
    return std::make_unique<MpiExchange>(*this, colour);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  // The standard forbids reading a started receive's buffer; no MPI writes there before a message.
  int open(int peer, int tag, const Parts& parts, bool sends) override {
    const auto messages = messages_of(parts);
    std::vector<MPI_Request>& all = sends ? sending_ : receiving_;
    ports_.push_back({&all, all.size(), int(messages.size())});
    for (const auto& message : messages) {
      MPI_Datatype type = type_of(message);
      MPI_Request* const request = &all.emplace_back();
      const auto set_up = [&](auto init, const char* call) {
        require(init(MPI_BOTTOM, 1, type, peer, kLetters + tag, all_, request), call);
      };
      sends ? set_up(MPI_Send_init, "MPI_Send_init") : set_up(MPI_Recv_init, "MPI_Recv_init");
      MPI_Type_free(&type);  // the request keeps a reference
    }
    const int port = int(ports_.size()) - 1;
    if (!sends) port_of_.resize(receiving_.size(), port);
    return port;
  }
  void close_ports() override {
    // MPI would wait forever for messages that a lost rank had begun to send.
    if (*abandoned_) return;
    for (MPI_Request& request : receiving_) {
      MPI_Cancel(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Request_free(&request);
    }
    for (MPI_Request& request : sending_) MPI_Request_free(&request);
    receiving_.clear();
    sending_.clear();
    port_of_.clear();
    ports_.clear();
  }
  void start(int port) override {
    const CallWatch::Call call(*watch_);
    Port& mine = ports_[std::size_t(port)];
    mine.missing = mine.count;
    require(MPI_Startall(mine.count, mine.requests()), "MPI_Startall");
  }
  bool over(int port) override {
    const CallWatch::Call call(*watch_);
    const Port& mine = ports_[std::size_t(port)];
    int over = 0;
    require(MPI_Testall(mine.count, mine.requests(), &over, MPI_STATUSES_IGNORE), "MPI_Testall");
    return over != 0;
  }
  int arrived() override {
    const CallWatch::Call call(*watch_);
    while (true) {
      int place = MPI_UNDEFINED, any = 0;
      require(
          MPI_Testany(int(receiving_.size()), receiving_.data(), &place, &any, MPI_STATUS_IGNORE),
          "MPI_Testany");
      if (!any || place == MPI_UNDEFINED) return -1;
      const int port = port_of_[std::size_t(place)];
      if (--ports_[std::size_t(port)].missing == 0) return port;
    }
  }

  void post(int to, About about, std::string text) override {
    const CallWatch::Call call(*watch_);
    sweep();
    posted_.push_back({std::move(text), MPI_REQUEST_NULL});
    Posted& last = posted_.back();
    require(MPI_Isend(last.text.data(), int(last.text.size()), MPI_BYTE, to, int(about), all_,
                      &last.request),
            "MPI_Isend");
  }
  std::optional<Letter> letter(About about) override {
    const CallWatch::Call call(*watch_);
    sweep();
    std::optional<Coming>& coming = coming_[std::size_t(about)];
    if (!coming) {
      int any = 0;
      MPI_Message message;
      MPI_Status status;
      require(MPI_Improbe(MPI_ANY_SOURCE, int(about), all_, &any, &message, &status),
              "MPI_Improbe");
      if (!any) return std::nullopt;
      int size = 0;
      MPI_Get_count(&status, MPI_BYTE, &size);
      coming.emplace(Coming{{status.MPI_SOURCE, std::string(std::size_t(size), '\0')}, {}});
      require(MPI_Imrecv(coming->letter.text.data(), size, MPI_BYTE, &message, &coming->request),
              "MPI_Imrecv");
    }
    int over = 0;
    require(MPI_Test(&coming->request, &over, MPI_STATUS_IGNORE), "MPI_Test");
    if (!over) return std::nullopt;
    Letter letter = std::move(coming->letter);
    coming.reset();
    return letter;
  }
  bool all_posted() override {
    const CallWatch::Call call(*watch_);
    sweep();
    return posted_.empty();
  }

 private:
  /// A port's messages, started and completed together.
  struct Port {
    std::vector<MPI_Request>* all;
    std::size_t first;
    int count;
    int missing = 0;  ///< receiving: messages still to arrive
    MPI_Request* requests() const { return all->data() + first; }
  };
  struct Posted {
    std::string text;
    MPI_Request request;
  };
  struct Coming {
    Letter letter;
    MPI_Request request;
  };

  void complete() {
    MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(all_, &rank_);
    MPI_Comm_size(all_, &ranks_);
  }
  void sweep() {
    for (auto letter = posted_.begin(); letter != posted_.end();) {
      int over = 0;
      require(MPI_Test(&letter->request, &over, MPI_STATUS_IGNORE), "MPI_Test");
      letter = over ? posted_.erase(letter) : std::next(letter);
    }
  }

  static constexpr int kLetters = 16;  ///< smaller tags are letters
  MPI_Comm all_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 1;
  const bool part_ = false;           ///< part of another exchange, which finalizes MPI
  std::shared_ptr<bool> abandoned_;   ///< shared by all parts
  std::shared_ptr<CallWatch> watch_;  ///< shared by all parts
  std::vector<MPI_Request> receiving_, sending_;
  std::vector<int> port_of_;  ///< [receiving request]
  std::vector<Port> ports_;
  std::list<Posted> posted_;
  std::optional<Coming> coming_[kAbouts];
};

}  // namespace
}  // namespace millrace::engine

extern "C" millrace::engine::Exchange* millrace_make_exchange() {
  return new millrace::engine::MpiExchange;
}
