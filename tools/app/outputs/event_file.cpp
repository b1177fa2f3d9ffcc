// Written by hand, since four messages' few fields are not worth a dependency on protobuf. Formats:
// records as tensorflow/core/lib/io/record_writer.h, masked CRCs as tensorflow/core/lib/hash/
// crc32c.h, Event and Summary as tensorflow/core/util/event.proto and framework/summary.proto (all
// at github.com/tensorflow/tensorflow), protobuf's wire format as protobuf.dev/programming-guides/
// encoding.
#include "tools/app/outputs/event_file.h"

#include <array>
#include <bit>

namespace millrace::app {
namespace {

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78; RFC 3720, B.4), a byte at a time.
constexpr std::array<std::uint32_t, 256> kCrc = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}();

std::uint32_t masked_crc(const std::string& bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = kCrc[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  crc = ~crc;
  // So that a CRC over bytes that hold CRCs is not weaker for it.
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof number; ++i) bytes += char(number >> (8 * i) & 0xff);
  return bytes;
}

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += char(0x80 | (number & 0x7f));
  return bytes + char(number);
}

enum Wire { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

std::string key(int field, Wire wire) {
  return varint(std::uint64_t(field) << 3 | wire);
}
std::string text_field(int field, const std::string& bytes) {
  return key(field, kLengthDelimited) + varint(bytes.size()) + bytes;
}

std::string record(const std::string& event) {
  const std::string length = little_endian(std::uint64_t(event.size()));
  return length + little_endian(masked_crc(length)) + event + little_endian(masked_crc(event));
}

// Event: 1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary.
std::string wall_time(double time) {
  return key(1, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(time));
}

// Summary: 1 value (repeated). Summary.Value: 1 tag (string), 2 simple_value (float).
std::string summary(const Scalars& scalars) {
  std::string values;
  for (const auto& [tag, value] : scalars) {
    values += text_field(1, text_field(1, tag) + key(2, kFixed32) +
                                little_endian(std::bit_cast<std::uint32_t>(float(value))));
  }
  return values;
}

}  // namespace

std::string event_file_head(double time) {
  return record(wall_time(time) + text_field(3, "brain.Event:2"));
}

std::string event_record(double time, std::int64_t step, const Scalars& scalars) {
  return record(wall_time(time) + key(2, kVarint) + varint(std::uint64_t(step)) +
                text_field(5, summary(scalars)));
}

}  // namespace millrace::app
