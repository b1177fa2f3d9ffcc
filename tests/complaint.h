#pragma once

#include <string>

namespace millrace {

/// The message of the `Error` that `act` throws; "" if it throws nothing.
template <class Error, class Act>
std::string complaint(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace millrace
