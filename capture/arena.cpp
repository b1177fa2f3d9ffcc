#include "capture/arena.h"

#include <algorithm>
#include <cstring>
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
