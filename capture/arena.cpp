#include "capture/arena.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace millrace::capture {
namespace {

thread_local Arena* kept_in = nullptr;
thread_local std::vector<const c10::StorageImpl*> excluded;

}  // namespace

char* Arena::block(std::size_t bytes) {
  if (blocks_.empty() || blocks_.back().bytes < bytes) {
    const std::size_t size = aligned(std::max<std::size_t>(bytes, 1));
    c10::DataPtr memory = c10::GetAllocator(device_.type())->allocate(size);
    if (device_.is_cpu())
      std::memset(memory.get(), 0, size);  // touch the pages before they are needed
    blocks_.push_back({size, std::move(memory)});
  }
  return static_cast<char*>(blocks_.back().memory.get());
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
  excluded.push_back(tensor.storage().unsafeGetStorageImpl());
}

std::vector<const c10::StorageImpl*> KeptIn::take_excluded() {
  return std::exchange(excluded, {});
}

}  // namespace millrace::capture
