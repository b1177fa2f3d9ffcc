#include "capture/arena.h"

#include <c10/core/Allocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <utility>

namespace millrace::capture {
namespace {

thread_local Arena* kept_in = nullptr;
thread_local KeptIn::Exceptions exceptions;

}  // namespace

Arena::Block Arena::reserve(std::size_t bytes, c10::Device device) {
  if (!device.is_cpu()) {
    c10::DataPtr data = c10::GetAllocator(device.type())->allocate(bytes);
    auto* const memory = static_cast<char*>(data.get());
    return {bytes, bytes, {memory, [owner = std::move(data)](char*) {}}};
  }
  std::size_t room = std::min(16 * bytes, bytes + kMostRoom);
  const auto reserved = [&] {
    return mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  };
  void* memory = reserved();
  if (memory == MAP_FAILED) {  // addresses are limited, too
    room = bytes;
    memory = reserved();
  }
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {0, room, {static_cast<char*>(memory), [room](char* all) { munmap(all, room); }}};
}

char* Arena::block(std::size_t bytes) {
  const std::size_t size = aligned(std::max<std::size_t>(bytes, 1));
  if (blocks_.empty() || blocks_.back().room < size) blocks_.push_back(reserve(size, device_));
  Block& block = blocks_.back();
  if (block.bytes < size) {
    if (mprotect(block.memory.get(), size, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::memset(block.memory.get() + block.bytes, 0, size - block.bytes);  // has the pages now
    block.bytes = size;
  }
  return block.memory.get();
}

std::int64_t Arena::bytes() const {
  std::int64_t bytes = 0;
  for (const Block& block : blocks_) bytes += std::int64_t(block.bytes);
  return bytes;
}

ArenaPlan plan_arena(const std::vector<Lifetime>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t value) { return values[value].bytes; });
  ArenaPlan plan{std::vector<std::size_t>(values.size(), 0), 0};
  std::vector<std::size_t> placed;
  for (const std::size_t value : order) {
    const Lifetime& mine = values[value];
    std::vector<std::size_t> meets;  // values alive at the same time, by offset
    for (const std::size_t other : placed) {
      if (values[other].first <= mine.last && mine.first <= values[other].last)
        meets.push_back(other);
    }
    std::ranges::sort(meets, {}, [&](std::size_t other) { return plan.offsets[other]; });
    std::size_t offset = 0;
    for (const std::size_t other : meets) {
      if (offset + mine.bytes <= plan.offsets[other]) break;
      offset = std::max(offset, aligned(plan.offsets[other] + values[other].bytes));
    }
    plan.offsets[value] = offset;
    plan.bytes = std::max(plan.bytes, offset + aligned(mine.bytes));
    placed.push_back(value);
  }
  return plan;
}

KeptIn::KeptIn(Arena& arena) : before_(std::exchange(kept_in, &arena)) {}

KeptIn::~KeptIn() {
  kept_in = before_;
}

Arena* KeptIn::current() {
  return kept_in;
}

void KeptIn::exclude(const at::Tensor& tensor) {
  exceptions.stay.push_back(tensor.storage().unsafeGetStorageImpl());
}

void KeptIn::unite(const at::Tensor& tensor, const at::Tensor& copy) {
  exceptions.united.emplace_back(tensor.storage().unsafeGetStorageImpl(), copy);
}

KeptIn::Exceptions KeptIn::take_exceptions() {
  return std::exchange(exceptions, {});
}

}  // namespace millrace::capture
