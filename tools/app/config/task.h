// What a network is asked to predict.
#pragma once

#include <string>
#include <vector>

#include "stages/model_spec.h"

namespace millrace::app {

/// What a sample's target is.
enum class Task { autoencode, next_frame, label, mask, stream, teacher };

/// A task: an entry of a table.
struct TaskType {
  Task task;
  std::string name;
  std::string target;   ///< "the input itself"
  std::string key;      ///< of [task], that is of this task alone; "": none
  stages::Gives gives;  ///< what its network's output is
  bool pictures;        ///< target and prediction are pictures to show
  bool classes;         ///< they tell classes, by the largest number
};

inline const std::vector<TaskType>& task_types() {
  using stages::Gives;
  static const std::vector<TaskType> all = {
      {Task::autoencode, "autoencode", "the input itself", "", Gives::picture, true, false},
      {Task::next_frame, "next-frame", "a later frame, task.horizon frames on", "task.horizon",
       Gives::picture, true, false},
      {Task::label, "label",
       "the class of the input, an output each: as the source tells it or task.labels",
       "task.labels", Gives::vector, false, true},
      {Task::mask, "mask", "each pixel's class, a channel each: as task.masks tells it",
       "task.masks", Gives::map, false, true},
      {Task::stream, "stream", "the same frame of another stream, task.stream", "task.stream",
       Gives::anything, true, false},
      {Task::teacher, "teacher", "what another network makes of the input, task.teacher",
       "task.teacher", Gives::anything, false, false}};
  return all;
}

/// The task of that name, which is in the table.
inline const TaskType& task_type(const std::string& name) {
  for (const TaskType& type : task_types()) {
    if (type.name == name) return type;
  }
  return task_types().front();
}

inline Task task_of(const std::string& name) {
  return task_type(name).task;
}

}  // namespace millrace::app
