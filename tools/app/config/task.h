#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "stages/model_spec.h"

namespace millrace::app {

enum class TargetFrom {
  input,        ///< the input itself
  later_frame,  ///< the frame task.horizon frames later
  label,        ///< the class number that the frame carries
  teller,       ///< a target that an io::Teller puts into the frame
  teacher,      ///< another network's output for the input
};

struct TaskType {
  std::string name;
  std::string meaning;  ///< description of the target, for check --keys
  std::string key;      ///< the key of [task] that only this task uses; "": none
  TargetFrom target;
  stages::Gives gives;  ///< the shape of the network's output
  bool pictures;        ///< target and prediction can be shown as pictures
  bool classes;         ///< the predicted class is the channel with the largest value

  bool target_is_frame() const {
    return target == TargetFrom::input || target == TargetFrom::later_frame;
  }
  bool needs_key() const { return target == TargetFrom::teller || target == TargetFrom::teacher; }
  bool pixel_classes() const { return gives == stages::Gives::map; }
};

inline const std::vector<TaskType>& task_types() {
  using stages::Gives;
  static const std::vector<TaskType> all = {
      {"autoencode", "the input itself", "", TargetFrom::input, Gives::picture, true, false},
      {"next-frame", "a later frame, task.horizon frames on", "task.horizon",
       TargetFrom::later_frame, Gives::picture, true, false},
      {"label", "the input's class, one output per class; from the source or task.labels",
       "task.labels", TargetFrom::label, Gives::vector, false, true},
      {"mask", "the class of each pixel, one channel per class; from task.masks", "task.masks",
       TargetFrom::teller, Gives::map, false, true},
      {"stream", "the same frame of another stream, task.stream", "task.stream", TargetFrom::teller,
       Gives::anything, true, false},
      {"teacher", "another network's output for the input, task.teacher", "task.teacher",
       TargetFrom::teacher, Gives::anything, false, false}};
  return all;
}

/// `name` must be in the table.
inline const TaskType& task_type(const std::string& name) {
  return *std::ranges::find(task_types(), name, &TaskType::name);
}

}  // namespace millrace::app
