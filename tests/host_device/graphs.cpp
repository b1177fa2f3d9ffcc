// Graphs: built of nodes or captured, instantiated, launched.
#include "tests/host_device/graphs.h"

#include <algorithm>
#include <random>

struct CUgraphExec_st {
  /// A node, with the numbers of those that it follows.
  struct Item {
    cudaGraphNodeType type;
    std::shared_ptr<host_device::Work> work;
    cudaEvent_t event;
    std::vector<std::size_t> after;
  };
  unsigned alive = host_device::kAlive;
  std::vector<Item> items;    ///< in an order that they allow
  host_device::MarkPtr last;  ///< launch
};

namespace host_device {
namespace {

using Item = CUgraphExec_st::Item;

std::shared_ptr<Graph> copy_of(const Graph& graph) {
  auto copy = std::make_shared<Graph>();
  std::map<const Node*, Node*> copied;
  for (const auto& node : graph.nodes) {
    std::vector<Node*> after;
    for (const Node* before : node->after) after.push_back(copied.at(before));
    Node* made = add_node(*copy, node->type, after);
    made->work = node->work;
    made->event = node->event;
    if (node->child) made->child = copy_of(*node->child);
    copied[node.get()] = made;
  }
  return copy;
}

cudaError_t add(cudaGraphNode_t* made, cudaGraph_t graph, const cudaGraphNode_t* after,
                std::size_t count, Node node) {
  if (!there(graph, "a node")) return cudaErrorInvalidValue;
  std::vector<Node*> before(after, after + count);
  for (const Node* one : before) {
    const auto& nodes = graph->graph->nodes;
    if (std::none_of(nodes.begin(), nodes.end(), [&](const auto& n) { return n.get() == one; }))
      return cudaErrorInvalidValue;
  }
  Node* const added = add_node(*graph->graph, node.type, before);
  added->event = node.event;
  added->child = node.child;
  *made = added;
  return cudaSuccess;
}

/// Puts the nodes of `graph` behind `items`; what follows nothing there follows `first`. Returns
/// the last ones: those that nothing follows.
std::vector<std::size_t> flatten(const Graph& graph, const std::vector<std::size_t>& first,
                                 std::vector<Item>& items) {
  std::map<const Node*, std::vector<std::size_t>> ends;
  std::set<const Node*> followed;
  for (const auto& node : graph.nodes) {
    std::vector<std::size_t> after;
    for (const Node* before : node->after) {
      followed.insert(before);
      after.insert(after.end(), ends[before].begin(), ends[before].end());
    }
    if (node->after.empty()) after = first;
    if (node->child) {
      ends[node.get()] = flatten(*node->child, after, items);
      if (ends[node.get()].empty()) ends[node.get()] = after;
    } else {
      ends[node.get()] = {items.size()};
      items.push_back({node->type, node->work, node->event, after});
    }
  }
  std::vector<std::size_t> last;
  for (const auto& node : graph.nodes)
    if (!followed.count(node.get()))
      last.insert(last.end(), ends[node.get()].begin(), ends[node.get()].end());
  return last;
}

/// A violation for nodes that meet in memory and follow each other in neither way.
void look_for_races_in(const std::vector<Item>& items) {
  std::vector<std::vector<bool>> follows(items.size(), std::vector<bool>(items.size()));
  const auto meet = [](const Item& a, const Item& b) {
    if (!a.work || !b.work) return false;
    for (const Range& x : a.work->ranges)
      for (const Range& y : b.work->ranges)
        if ((x.written || y.written) && overlap(x, y)) return true;
    return false;
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (const std::size_t before : items[i].after) {
      follows[i][before] = true;
      for (std::size_t j = 0; j < before; ++j)
        if (follows[before][j]) follows[i][j] = true;
    }
    for (std::size_t j = 0; j < i; ++j)
      if (!follows[i][j] && meet(items[i], items[j]))
        violation("a graph has %s and %s in no order", items[j].work->name.c_str(),
                  items[i].work->name.c_str());
  }
}

/// Some order that the nodes allow: a device need not take the one in which they were made.
std::vector<Item> in_some_order(const std::vector<Item>& items) {
  static std::minstd_rand random(1);
  std::vector<Item> ordered;
  std::vector<std::size_t> left(items.size()), ready, at(items.size());
  std::vector<std::vector<std::size_t>> followers(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    left[i] = items[i].after.size();
    for (const std::size_t before : items[i].after) followers[before].push_back(i);
    if (left[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const std::size_t next = ready.back();
    ready.pop_back();
    ordered.push_back(items[next]);
    for (const std::size_t follower : followers[next])
      if (--left[follower] == 0) ready.push_back(follower);
  }
  return ordered;
}

/// What a launch has the stream do for one node. False: it can't be launched.
bool append(const Item& item, CUstream_st& stream, Operation& operation) {
  if (item.event && !alive(item.event)) {
    violation("a graph is launched whose event was destroyed");
    return false;
  }
  if (item.type == cudaGraphNodeTypeWaitEvent) {
    if (!item.event->mark) violation("a graph waits for an event that nobody has recorded");
    wait_for(operation, stream, item.event->mark);
  } else if (item.type == cudaGraphNodeTypeEventRecord) {
    auto mark = std::make_shared<Mark>();
    if (item.after.empty()) mark->when = Time::now();
    mark->stream = stream.number;
    mark->at = ++stream.position;
    mark->before = stream.before;
    mark->older = item.event->mark;
    if (mark->older) mark->older->older.reset();
    stream.before[stream.number] = mark->at;
    item.event->mark = mark;
    operation.steps.push_back({.set = mark});
  } else if (item.work) {
    require_memory(*item.work);
    if (item.work->given) item.work->given(stream);
    look_for_races(item.work, stream, operation.over);
    operation.steps.push_back({.work = item.work});
  }
  return true;
}

}  // namespace

Node* add_node(Graph& graph, cudaGraphNodeType type, std::vector<Node*> after) {
  auto node = std::make_unique<Node>();
  node->type = type;
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  node->after = std::move(after);
  graph.nodes.push_back(std::move(node));
  return graph.nodes.back().get();
}

cudaGraph_t new_graph(std::shared_ptr<Graph> graph) {
  ++graphs_held;
  auto* made = new_handle<CUgraph_st>();
  made->graph = std::move(graph);
  return made;
}

}  // namespace host_device

using namespace host_device;

CALL(cudaGraphCreate, (cudaGraph_t * made, unsigned),
     { *made = new_graph(std::make_shared<Graph>()); })
CALL(cudaGraphDestroy, (cudaGraph_t graph), {
  if (!there(graph, "cudaGraphDestroy")) return cudaErrorInvalidValue;
  graph->alive = 0;
  graph->graph.reset();
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
       return add(made, graph, after, count,
                  {.type = cudaGraphNodeTypeGraph, .child = copy_of(*child->graph)});
     })
CALL(cudaGraphInstantiateWithFlags, (cudaGraphExec_t * made, cudaGraph_t graph, unsigned long long),
     {
       if (!there(graph, "cudaGraphInstantiate")) return cudaErrorInvalidValue;
       std::vector<Item> items;
       flatten(*graph->graph, {}, items);
       look_for_races_in(items);
       *made = new_handle<CUgraphExec_st>();
       (*made)->items = in_some_order(items);
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
  for (const Item& item : graph->items)
    if (!append(item, *stream, operation)) return cudaErrorInvalidValue;
  graph->last = submit(*stream, std::move(operation));
})
CALL(cudaGraphExecDestroy, (cudaGraphExec_t graph), {
  if (!there(graph, "cudaGraphExecDestroy")) return cudaErrorInvalidValue;
  if (graph->last && !graph->last->over)
    violation("cudaGraphExecDestroy of a graph that is under way");
  graph->alive = 0;
  graph->items.clear();
  graph->last.reset();
  --executables_held;
})
