// Graphs, and what captures make of streams' work.
#pragma once

#include "tests/host_device/core.h"

struct CUgraphNode_st {
  cudaGraphNodeType type;
  std::shared_ptr<host_device::Work> work;
  cudaEvent_t event = nullptr;
  std::shared_ptr<host_device::Graph> child;
  std::vector<host_device::Node*> after;
};

namespace host_device {

struct Graph {
  std::deque<std::unique_ptr<Node>> nodes;  ///< each comes after those that it follows
};

/// One sequence of captured work, of one stream.
struct Capture {
  std::uint64_t id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  CUstream_st* stream;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  bool invalid = false;
};

Node* add_node(Graph& graph, cudaGraphNodeType type, std::vector<Node*> after);
cudaGraph_t new_graph(std::shared_ptr<Graph> graph);

}  // namespace host_device

struct CUgraph_st {
  unsigned alive = host_device::kAlive;
  std::shared_ptr<host_device::Graph> graph;
};
