#pragma once

#include "capture/program/operations/map.cuh"

namespace millrace::gpu {

#define FORMULA DEVICE
#include "capture/program/operations/softmax-inl.h"
#undef FORMULA

/// A row that a block's threads share.
template <int kThreads>
struct Row {
  int count;
  template <class Of>
  DEVICE float sum(const Of& of) const {
    float part = 0;
    each([&](const Element& e) { part += of(e); });
    return float(sum_of_block<kThreads>(part));
  }
  DEVICE float largest(const float* x) const {
    const auto larger = [](double a, double b) { return b > a || b != b ? b : a; };  // NaN wins
    double own = *x;
    each([&](const Element& e) { own = larger(own, e.load(x)); });
    return float(combined_in_block<kThreads>(own, larger));
  }
  template <class Work>
  DEVICE void each(const Work& work) const {
    for (int i = thread(); i < count; i += kThreads) work(Element{i});
  }
};

/// One block per row.
template <int kThreads>
KERNEL(kThreads)
softmax(BY_VALUE RowArguments r) {
  start();
  const long long first = (long long)(block()) * r.row;
  softmax_row(Row<kThreads>{r.row}, r, r.a + first, r.to + first);
}
template <int kThreads>
KERNEL(kThreads)
softmax_gradient(BY_VALUE RowArguments r) {
  start();
  const long long first = (long long)(block()) * r.row;
  softmax_gradient_row(Row<kThreads>{r.row}, r, r.a + first, r.b + first, r.to + first);
}

}  // namespace millrace::gpu
