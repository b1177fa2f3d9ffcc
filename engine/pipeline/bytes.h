// Serialization of numbers, lists and texts for a process of the same build.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace millrace::engine {

class ByteWriter {
 public:
  template <class T>
  ByteWriter& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  template <class T>
  ByteWriter& put(const std::vector<T>& values) {
    put(std::int64_t(values.size()));
    for (const T& value : values) put(value);
    return *this;
  }
  ByteWriter& put(const std::string& text) {
    put(std::int64_t(text.size()));
    bytes_ += text;
    return *this;
  }
  /// Without a length: only for the last field.
  ByteWriter& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads a ByteWriter's bytes, which outlive it, in order. Throws std::runtime_error if cut short.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(static_cast<void*>(&value), raw(sizeof value).data(), sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> values;
    for (auto count = get<std::int64_t>(); count > 0; --count) {
      if constexpr (std::is_same_v<T, std::string>) {
        values.emplace_back(text());
      } else {
        values.push_back(get<T>());
      }
    }
    return values;
  }
  std::string_view text() { return raw(std::size_t(get<std::int64_t>())); }
  std::string_view raw(std::size_t size) {
    if (size > rest_.size()) throw std::runtime_error("a message from another rank was cut short");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace millrace::engine
