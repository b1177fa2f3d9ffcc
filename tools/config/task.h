// What a network is asked to predict.
#pragma once

#include <string>
#include <vector>

namespace millrace::tools {

/// What a sample's target is.
enum class Task { autoencode, next_frame, label };

/// A task: an entry of a table.
struct TaskType {
  Task task;
  std::string name;
  std::string target;  ///< "the input itself"
};

inline const std::vector<TaskType>& task_types() {
  static const std::vector<TaskType> all = {
      {Task::autoencode, "autoencode", "the input itself"},
      {Task::next_frame, "next-frame", "a later frame, task.horizon frames on"},
      {Task::label, "label",
       "the class of the input, an output each: as the source tells it or task.labels"}};
  return all;
}

/// The task of that name, which is in the table.
inline Task task_of(const std::string& name) {
  for (const TaskType& type : task_types()) {
    if (type.name == name) return type.task;
  }
  return Task::autoencode;
}

}  // namespace millrace::tools
