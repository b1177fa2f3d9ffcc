// Graphs: built of nodes or captured, instantiated, launched.
#include <algorithm>
#include <random>
#include <span>

#include "tests/host_device/core.h"

struct CUgraphExec_st {
  unsigned alive = host_device::kAlive;
  std::vector<host_device::Node> nodes;  ///< in an order that they allow
  host_device::MarkPtr last;             ///< launch
};

namespace host_device {
namespace {

/// Adds `node`, behind copies of a child's nodes.
cudaError_t add(cudaGraphNode_t* made, cudaGraph_t to, const cudaGraphNode_t* after,
                std::size_t count, Node node, const Graph& child = {}) {
  if (!there(to, "a node")) return cudaErrorInvalidValue;
  Graph& graph = to->graph;
  for (const Node* const before : std::span(after, count)) {
    const auto found = std::ranges::find(graph, before, [](const Node& one) { return &one; });
    if (found == graph.end()) return cudaErrorInvalidValue;
    node.after.push_back(std::size_t(found - graph.begin()));
  }
  const std::vector<std::size_t> begins_after = node.after;
  const std::size_t first = graph.size();
  for (Node copy : child) {
    for (std::size_t& before : copy.after) before += first;
    if (copy.after.empty()) copy.after = begins_after;
    node.after.push_back(graph.size());
    graph.push_back(std::move(copy));
  }
  *made = &graph.emplace_back(std::move(node));
  return cudaSuccess;
}

/// A violation for nodes that meet in memory and follow each other in neither way.
void look_for_races_in(const Graph& nodes) {
  std::vector<std::vector<bool>> follows(nodes.size(), std::vector<bool>(nodes.size()));
  const auto meet = [](const Node& a, const Node& b) {
    if (!a.work || !b.work) return false;
    for (const Range& x : a.work->ranges)
      for (const Range& y : b.work->ranges)
        if ((x.written || y.written) && overlap(x, y)) return true;
    return false;
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::size_t before : nodes[i].after) {
      follows[i][before] = true;
      for (std::size_t j = 0; j < before; ++j)
        if (follows[before][j]) follows[i][j] = true;
    }
    for (std::size_t j = 0; j < i; ++j)
      if (!follows[i][j] && meet(nodes[i], nodes[j]))
        violation("a graph has %s and %s in no order", nodes[j].work->name.c_str(),
                  nodes[i].work->name.c_str());
  }
}

/// Some order that the nodes allow: a device need not take the one in which they were made.
std::vector<Node> in_some_order(const Graph& nodes) {
  static std::minstd_rand random(1);
  std::vector<Node> ordered;
  std::vector<std::size_t> left(nodes.size()), ready;
  std::vector<std::vector<std::size_t>> followers(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    left[i] = nodes[i].after.size();
    for (const std::size_t before : nodes[i].after) followers[before].push_back(i);
    if (left[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const std::size_t next = ready.back();
    ready.pop_back();
    ordered.push_back(nodes[next]);
    for (const std::size_t follower : followers[next])
      if (--left[follower] == 0) ready.push_back(follower);
  }
  return ordered;
}

/// What a launch has the stream do for one node. False: it can't be launched.
bool append(const Node& node, CUstream_st& stream, Operation& operation) {
  if (node.event && !alive(node.event)) {
    violation("a graph is launched whose event was destroyed");
    return false;
  }
  if (node.type == cudaGraphNodeTypeWaitEvent) {
    if (!node.event->mark) violation("a graph waits for an event that nobody has recorded");
    wait_for(operation, stream, node.event->mark);
  } else if (node.type == cudaGraphNodeTypeEventRecord) {
    auto mark = std::make_shared<Mark>();
    if (node.after.empty()) mark->when = Time::now();
    mark->stream = stream.number;
    mark->at = ++stream.position;
    mark->before = stream.before;
    mark->older = node.event->mark;
    if (mark->older) mark->older->older.reset();
    stream.before[stream.number] = mark->at;
    node.event->mark = mark;
    operation.steps.push_back({.set = mark});
  } else if (node.work) {
    require_memory(*node.work);
    if (node.work->given) node.work->given(stream);
    look_for_races(node.work, stream, operation.over);
    operation.steps.push_back({.work = node.work});
  }
  return true;
}

}  // namespace

cudaGraph_t new_graph(Graph graph) {
  ++graphs_held;
  auto* made = new_handle<CUgraph_st>();
  made->graph = std::move(graph);
  return made;
}

}  // namespace host_device

using namespace host_device;

CALL(cudaGraphCreate, (cudaGraph_t * made, unsigned), { *made = new_graph({}); })
CALL(cudaGraphDestroy, (cudaGraph_t graph), {
  if (!there(graph, "cudaGraphDestroy")) return cudaErrorInvalidValue;
  graph->alive = 0;
  graph->graph.clear();
  --graphs_held;
})
CALL(cudaGraphAddEventWaitNode,
     (cudaGraphNode_t * made, cudaGraph_t graph, const cudaGraphNode_t* after, std::size_t count,
      cudaEvent_t event),
     {
       return add(made, graph, after, count, {.type = cudaGraphNodeTypeWaitEvent, .event = event});
     })
CALL(cudaGraphAddEventRecordNode,
     (cudaGraphNode_t * made, cudaGraph_t graph, const cudaGraphNode_t* after, std::size_t count,
      cudaEvent_t event),
     {
       return add(made, graph, after, count,
                  {.type = cudaGraphNodeTypeEventRecord, .event = event});
     })
CALL(cudaGraphAddChildGraphNode,
     (cudaGraphNode_t * made, cudaGraph_t graph, const cudaGraphNode_t* after, std::size_t count,
      cudaGraph_t child),
     {
       if (!there(child, "a child node")) return cudaErrorInvalidValue;
       return add(made, graph, after, count, {.type = cudaGraphNodeTypeGraph}, child->graph);
     })
CALL(cudaGraphInstantiateWithFlags, (cudaGraphExec_t * made, cudaGraph_t graph, unsigned long long),
     {
       if (!there(graph, "cudaGraphInstantiate")) return cudaErrorInvalidValue;
       look_for_races_in(graph->graph);
       *made = new_handle<CUgraphExec_st>();
       (*made)->nodes = in_some_order(graph->graph);
       ++executables_held;
     })
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                     unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(made, graph, flags);
}
CALL(cudaGraphUpload, (cudaGraphExec_t graph, cudaStream_t handle), {
  CUstream_st* stream = stream_of(handle);
  if (!stream || !alive(graph)) return cudaErrorInvalidValue;
  return refuse_captured(*stream);
})
CALL(cudaGraphLaunch, (cudaGraphExec_t graph, cudaStream_t handle), {
  CUstream_st* stream = stream_of(handle);
  if (!there(graph, "cudaGraphLaunch") || !stream) return cudaErrorInvalidValue;
  if (stream->device != current_device)
    violation("a graph is launched while another device is current");
  TRY(refuse_captured(*stream));  // a device would make a child of it
  Operation operation;
  if (stream->tail != graph->last) wait_for(operation, *stream, graph->last);
  for (const Node& node : graph->nodes)
    if (!append(node, *stream, operation)) return cudaErrorInvalidValue;
  graph->last = submit(*stream, std::move(operation));
})
CALL(cudaGraphExecDestroy, (cudaGraphExec_t graph), {
  if (!there(graph, "cudaGraphExecDestroy")) return cudaErrorInvalidValue;
  if (graph->last && !graph->last->over)
    violation("cudaGraphExecDestroy of a graph that is under way");
  graph->alive = 0;
  graph->nodes.clear();
  graph->last.reset();
  --executables_held;
})
