// Registers the element `millrace` with GStreamer: pads, properties, state changes.
#include <variant>
#include <vector>

#include "tools/bindings/gst/element.h"

namespace {

using millrace::gst::Element, millrace::gst::Output, millrace::gst::Settings;

struct GstMillrace {
  GstElement parent;
  Element* element;
};
struct GstMillraceClass {
  GstElementClass parent;
};

G_DEFINE_TYPE(GstMillrace, gst_millrace, GST_TYPE_ELEMENT)

/// Members that store the values of properties 1, 2, ...
using Member = std::variant<std::string Settings::*, std::int64_t Settings::*, double Settings::*,
                            bool Settings::*, Output Settings::*>;
std::vector<Member> members;

GType output_type() {
  static const GEnumValue kValues[] = {
      {int(Output::prediction), "What the network predicts", "prediction"},
      {int(Output::error), "How far it is off, four times as bright", "error"},
      {int(Output::input_beside), "The input, and the prediction beside it", "input-beside"},
      {0, nullptr, nullptr}};
  static const GType type = g_enum_register_static("GstMillraceOutput", kValues);
  return type;
}

Element& element_of(gpointer object) {
  return *reinterpret_cast<GstMillrace*>(object)->element;
}

/// Converts property values from and to GStreamer's.
struct Value {
  static void take(const GValue* from, std::string& to) {
    const gchar* const text = g_value_get_string(from);
    to = text ? text : "";
  }
  static void take(const GValue* from, std::int64_t& to) { to = g_value_get_int64(from); }
  static void take(const GValue* from, double& to) { to = g_value_get_double(from); }
  static void take(const GValue* from, bool& to) { to = g_value_get_boolean(from); }
  static void take(const GValue* from, Output& to) { to = Output(g_value_get_enum(from)); }
  static void give(GValue* to, const std::string& from) { g_value_set_string(to, from.c_str()); }
  static void give(GValue* to, std::int64_t from) { g_value_set_int64(to, from); }
  static void give(GValue* to, double from) { g_value_set_double(to, from); }
  static void give(GValue* to, bool from) { g_value_set_boolean(to, from); }
  static void give(GValue* to, Output from) { g_value_set_enum(to, int(from)); }
};

void set_property(GObject* object, guint id, const GValue* value, GParamSpec*) {
  Element& element = element_of(object);
  GST_OBJECT_LOCK(object);
  std::visit([&](auto member) { Value::take(value, element.settings.*member); }, members[id - 1]);
  GST_OBJECT_UNLOCK(object);
  element.settings_changed();
}

void get_property(GObject* object, guint id, GValue* value, GParamSpec*) {
  Element& element = element_of(object);
  if (id > members.size()) return g_value_take_boxed(value, element.stats());
  GST_OBJECT_LOCK(object);
  std::visit([&](auto member) { Value::give(value, element.settings.*member); }, members[id - 1]);
  GST_OBJECT_UNLOCK(object);
}

GstStateChangeReturn change_state(GstElement* object, GstStateChange change) {
  Element& element = element_of(object);
  if (change == GST_STATE_CHANGE_NULL_TO_READY && !element.read_config())
    return GST_STATE_CHANGE_FAILURE;
  if (change == GST_STATE_CHANGE_READY_TO_PAUSED && !element.begin())
    return GST_STATE_CHANGE_FAILURE;
  if (change == GST_STATE_CHANGE_PAUSED_TO_READY) element.unblock();
  const GstStateChangeReturn done =
      GST_ELEMENT_CLASS(gst_millrace_parent_class)->change_state(object, change);
  if (change == GST_STATE_CHANGE_PAUSED_TO_READY) element.stop();
  return done;
}

void finalize(GObject* object) {
  delete reinterpret_cast<GstMillrace*>(object)->element;
  G_OBJECT_CLASS(gst_millrace_parent_class)->finalize(object);
}

void add_properties(GObjectClass* type) {
  constexpr auto kMade =
      GParamFlags(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
  constexpr auto kMeanwhile =
      GParamFlags(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING);
  const auto add = [&](Member member, GParamSpec* spec) {
    members.push_back(member);
    g_object_class_install_property(type, guint(members.size()), spec);
  };
  const auto add_text = [&](std::string Settings::*member, const char* name, const char* nick,
                            const char* blurb) {
    add(member, g_param_spec_string(name, nick, blurb, "", kMade));
  };
  add_text(&Settings::config, "config", "Config",
           "Config file, TOML; empty: every key at its default. Its source.uri is not read, since "
           "frames come from upstream");
  add_text(&Settings::set, "set", "Settings",
           "Keys set on top of the config: table.key=value, separated by semicolons");
  add_text(&Settings::schedule, "schedule", "Schedule",
           "pipeline.schedule, e.g. partime or pipedream; empty: the config's");
  add_text(&Settings::weights, "weights", "Weights",
           "A .safetensors file to start from, if it exists, and to save to at the end; empty: the "
           "config's model.weights and output.weights");
  add_text(&Settings::report, "report", "Report",
           "Where the report is written at the end, JSON; empty: the config's");
  add_text(&Settings::serve, "serve", "Serve",
           "ADDRESS:PORT of a page to watch learning on; empty: none");
  add(&Settings::frames,
      g_param_spec_int64("frames", "Frames", "Frames to train, then the stream ends; 0: all", 0,
                         G_MAXINT64, 0, kMade));
  add(&Settings::rate,
      g_param_spec_double("rate", "Rate", "Learning rate, times the config's optimizer.lr", 0, 1000,
                          1, GParamFlags(kMeanwhile | GST_PARAM_CONTROLLABLE)));
  add(&Settings::output, g_param_spec_enum("output", "Output", "What the pictures show",
                                           output_type(), int(Output::prediction), kMade));
  add(&Settings::qos, g_param_spec_boolean(
                          "qos", "QoS",
                          "Leave out pictures that would be too late to be shown; their frames are "
                          "learned from all the same",
                          TRUE, kMeanwhile));
  add(&Settings::post_messages,
      g_param_spec_boolean(
          "post-messages", "Post messages",
          "Post an element message for each prediction: frame, timestamp, loss, class", FALSE,
          kMeanwhile));
  GParamSpec* const stats = g_param_spec_boxed(
      "stats", "Statistics",
      "Frames that came, frames lost before they were learned from, pictures "
      "pushed, too late and not shown, the last loss",
      GST_TYPE_STRUCTURE, GParamFlags(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));
  g_object_class_install_property(type, guint(members.size()) + 1, stats);
}

constexpr char kCaps[] =
    "video/x-raw, format = (string) { RGB, GRAY8 }, width = (int) [ 1, max ], "
    "height = (int) [ 1, max ], framerate = (fraction) [ 0, max ]";
GstStaticPadTemplate sink_template =
    GST_STATIC_PAD_TEMPLATE("sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS(kCaps));
GstStaticPadTemplate src_template =
    GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS(kCaps));

void gst_millrace_class_init(GstMillraceClass* made) {
  GObjectClass* const type = G_OBJECT_CLASS(made);
  type->set_property = set_property;
  type->get_property = get_property;
  type->finalize = finalize;
  add_properties(type);
  GstElementClass* const element = GST_ELEMENT_CLASS(made);
  element->change_state = change_state;
  gst_element_class_add_static_pad_template(element, &sink_template);
  gst_element_class_add_static_pad_template(element, &src_template);
  gst_element_class_set_static_metadata(
      element, "Millrace", "Filter/Effect/Video",
      "Learns from each frame with a neural network and shows what it predicts", "Millrace");
  gst_type_mark_as_plugin_api(output_type(), GstPluginAPIFlags(0));
}

/// Passes a pad's data to the element.
template <auto kMethod, class Received>
auto pass_on(GstPad*, GstObject* parent, Received* received) {
  return (element_of(parent).*kMethod)(received);
}

void gst_millrace_init(GstMillrace* self) {
  GstPad* const sink = gst_pad_new_from_static_template(&sink_template, "sink");
  GstPad* const src = gst_pad_new_from_static_template(&src_template, "src");
  self->element = new Element(GST_ELEMENT(self), sink, src);
  gst_pad_set_chain_function(sink, (pass_on<&Element::chain, GstBuffer>));
  gst_pad_set_event_function(sink, (pass_on<&Element::sink_event, GstEvent>));
  gst_pad_set_query_function(sink, (pass_on<&Element::sink_query, GstQuery>));
  gst_pad_set_event_function(src, (pass_on<&Element::src_event, GstEvent>));
  gst_pad_set_query_function(src, (pass_on<&Element::src_query, GstQuery>));
  gst_pad_set_activatemode_function(
      src, [](GstPad*, GstObject* parent, GstPadMode mode, gboolean active) -> gboolean {
        return mode == GST_PAD_MODE_PUSH && element_of(parent).activate_src(active);
      });
  gst_pad_use_fixed_caps(src);
  gst_element_add_pad(GST_ELEMENT(self), sink);
  gst_element_add_pad(GST_ELEMENT(self), src);
}

gboolean register_elements(GstPlugin* plugin) {
  return gst_element_register(plugin, "millrace", GST_RANK_NONE, gst_millrace_get_type());
}

}  // namespace

#define PACKAGE "millrace"
GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, millrace,
                  "A neural network that learns from a live video stream", register_elements,
                  MILLRACE_VERSION, "MIT/X11", "Millrace", "Unknown package origin")
