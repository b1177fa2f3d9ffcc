// NCCL between two ranks, threads or processes of one machine. A send ends when its receive has
// taken the numbers: the real one may end before, and nobody may rely on that.
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

#include "tests/host_device/core.h"

using namespace host_device;

struct ncclComm {
  /// What both ends see: a file, as large as what is written in it.
  struct Meeting {
    std::atomic<int> process[2];
    std::atomic<bool> aborted;
    std::atomic<std::uint64_t> sent, taken;
    std::size_t bytes;
    char numbers[64 << 20];
  };
  /// Of ends in this process, under the device's lock: a receive that is over comes after its send
  /// and all before that.
  struct Order {
    std::deque<Progress> sends;  ///< given, and not their receives
    int receives = 0;            ///< given before their sends
  };

  Meeting* meeting;
  Order* order;  ///< null: the other end is in another process, and so are its streams
  /// Work holds it, in graphs, too: an end waits until nobody else does.
  std::shared_ptr<int> held = std::make_shared<int>();
  std::uint64_t transfers = 0;
};

namespace {

using Meeting = ncclComm::Meeting;
using Order = ncclComm::Order;

auto& orders = *new std::map<std::string, Order>;

/// False: nothing more happens between the two.
template <class There>
bool await(const Meeting& meeting, const There& there) {
  while (!there()) {
    if (meeting.aborted) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

void end(ncclComm_t comm) {
  while (comm->held.use_count() > 1) std::this_thread::sleep_for(std::chrono::microseconds(20));
  munmap(comm->meeting, sizeof(Meeting));
  delete comm;
}

void send(Meeting& meeting, std::uint64_t number, const void* from, std::size_t bytes) {
  std::memcpy(meeting.numbers, from, bytes);
  meeting.bytes = bytes;
  meeting.sent = number;
  await(meeting, [&] { return meeting.taken >= number; });
}

void receive(Meeting& meeting, std::uint64_t number, void* to, std::size_t bytes) {
  if (!await(meeting, [&] { return meeting.sent >= number; })) return;
  if (bytes != meeting.bytes)
    violation("a receive of %zu bytes meets a send of %zu", bytes, meeting.bytes);
  std::memcpy(to, meeting.numbers, bytes);
  meeting.taken = number;
}

void note(Order& order, bool sends, CUstream_st& on) {
  if (!sends && order.sends.empty()) {
    ++order.receives;
  } else if (!sends) {
    join(on.before, order.sends.front());
    order.sends.pop_front();
  } else if (order.receives > 0) {
    --order.receives;
  } else {
    order.sends.push_back(on.before);
    order.sends.back()[on.number] = on.position + 1;
  }
}

ncclResult_t transfer(const char* name, const void* at, std::size_t bytes, bool sends,
                      ncclComm_t comm, cudaStream_t stream) {
  Work work{.name = name};
  if (comm->order) {
    work.ranges = {{at, bytes, !sends}};
    work.given = [=](CUstream_st& on) { note(*comm->order, sends, on); };
  }
  work.run = [=, held = comm->held] {
    void* const here = hostDeviceReach(at);
    if (sends) {
      send(*comm->meeting, ++comm->transfers, here, bytes);
    } else {
      receive(*comm->meeting, ++comm->transfers, here, bytes);
    }
  };
  return hostDeviceLaunch(stream, &work) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

}  // namespace

API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made = 0;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "/host-device-%d-%d", int(getpid()), ++made);
  return ncclSuccess;
}
API ncclResult_t ncclCommInitRank(ncclComm_t* made, int ranks, ncclUniqueId id, int rank) {
  if (ranks != 2 || rank < 0 || rank > 1) return ncclInvalidArgument;
  // Fails where a test says so.
  if (call(__func__, [](Guard&) { return cudaSuccess; }) != cudaSuccess) return ncclSystemError;
  const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
  void* const mapped =
      ftruncate(file, sizeof(Meeting)) != 0
          ? MAP_FAILED
          : mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return ncclSystemError;
  auto* const meeting = static_cast<Meeting*>(mapped);
  meeting->process[rank] = getpid();
  await(*meeting, [&] { return meeting->process[0] && meeting->process[1]; });
  shm_unlink(id.internal);  // by the second it is gone
  const Guard guard(lock);
  const bool together = meeting->process[0] == meeting->process[1];
  *made = new ncclComm{meeting, together ? &orders[id.internal] : nullptr};
  return ncclSuccess;
}
API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->meeting->sent != comm->meeting->taken)
    violation("a communicator is destroyed with a send under way");
  end(comm);
  return ncclSuccess;
}
API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->meeting->aborted = true;
  end(comm);
  return ncclSuccess;
}
SUCCEEDS(ncclResult_t, ncclGroupStart, ())
SUCCEEDS(ncclResult_t, ncclGroupEnd, ())
API ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int, ncclComm_t comm,
                          cudaStream_t stream) {
  return transfer("ncclSend", from, count * sizeof(float), true, comm, stream);
}
API ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t, int, ncclComm_t comm,
                          cudaStream_t stream) {
  return transfer("ncclRecv", to, count * sizeof(float), false, comm, stream);
}
API const char* ncclGetErrorString(ncclResult_t) {
  return "refused by the host device";
}
