#include "io/source/codecs.h"

#include <dlfcn.h>

#include <stdexcept>

namespace millrace::io {

const Codecs& codecs() {
  static const Codecs* const found = [] {
    // Found by the RUNPATH of the program or library that contains this code.
    void* const module = dlopen("libmillrace_codecs.so", RTLD_NOW);
    if (!module) throw std::runtime_error(dlerror());
    return static_cast<const Codecs*>(dlsym(module, "millrace_codecs"));
  }();
  return *found;
}

}  // namespace millrace::io
