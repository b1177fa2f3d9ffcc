// Not in engine/plan, which uses the standard library alone.
#pragma once

#include <string>

#include "engine/plan/profile.h"

namespace millrace::engine::plan {

/// One line per module; times are [median, spread] in ms:
///
///     {"millrace_profile": 1, "network": "...", "source": "...", "device": "...", "frames": 1,
///      "input_bytes": 0, "thread_speedup": [1, 1.8],
///      "hand_offs": [{"between": "cpu-cpu", "bytes_ms": [[1000, 0.01]]}],
///      "modules": [
///       {"name": "conv0", "forward_ms": [1, 0], "input_gradient_ms": [0, 0],
///        "weight_gradient_ms": [1, 0], "update_ms": [0, 0], "activation_bytes": 0,
///        "gradient_bytes": 0, "weight_bytes": 0, "state_bytes": 0, "stash_bytes": 0,
///        "tensor_ways": 2, "tensor_bytes": 0, "tensor_gradient_bytes": 0,
///        "tensor_ms": [[2, 0.5, 0.5, 0.5, 0]]}]}
///
/// tensor_ms: the number of parts, then one part's forward, input and weight gradient, and update.
std::string profile_to_json(const Profile& profile);

/// Reads and checks what profile_to_json() writes. A time may be a bare number, with spread 0.
/// frames, input_bytes, thread_speedup, hand_offs, state_bytes and tensor_* are optional;
/// tensor_gradient_bytes defaults to tensor_bytes. Throws ProfileError with one line, as "NAME:
/// module 3 (conv1): forward_ms is missing".
Profile profile_from_json(const std::string& text, const std::string& name);

}  // namespace millrace::engine::plan
