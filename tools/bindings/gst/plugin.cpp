// The element `millrace` as GStreamer knows it: its pads, its properties, its changes of state.
#include <iterator>

#include "tools/bindings/gst/element.h"

namespace {

using millrace::gst::Element;
using millrace::gst::Output;
using millrace::gst::Settings;

struct GstMillrace {
  GstElement parent;
  Element* element;
};
struct GstMillraceClass {
  GstElementClass parent;
};

G_DEFINE_TYPE(GstMillrace, gst_millrace, GST_TYPE_ELEMENT)

/// Properties that are texts; their numbers are 1, 2, ...
struct TextProperty {
  const char *name, *nick, *blurb;
  std::string Settings::*value;
};
constexpr TextProperty kTexts[] = {
    {"config", "Config",
     "Config file, TOML; empty: every key at its default. Its source.uri is not read, since frames "
     "come from upstream",
     &Settings::config},
    {"set", "Settings", "Keys set on top of the config: table.key=value, separated by semicolons",
     &Settings::set},
    {"schedule", "Schedule", "pipeline.schedule, e.g. partime or pipedream; empty: the config's",
     &Settings::schedule},
    {"weights", "Weights",
     "A .safetensors file to start from, if it exists, and to save to at the end; empty: the "
     "config's model.weights and output.weights",
     &Settings::weights},
    {"report", "Report", "Where the report is written at the end, JSON; empty: the config's",
     &Settings::report},
    {"serve", "Serve", "ADDRESS:PORT of a page to watch learning on; empty: none",
     &Settings::serve}};

enum Property : guint {
  kFrames = std::size(kTexts) + 1,
  kRate,
  kOutput,
  kQos,
  kPostMessages,
  kStats,
};

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

void set_property(GObject* object, guint id, const GValue* value, GParamSpec* spec) {
  Element& element = element_of(object);
  if (id == kRate) return element.set_rate(g_value_get_double(value));
  GST_OBJECT_LOCK(object);
  Settings& settings = element.settings;
  if (id <= std::size(kTexts)) {
    const gchar* const given = g_value_get_string(value);
    settings.*kTexts[id - 1].value = given ? given : "";
  } else if (id == kFrames) {
    settings.frames = g_value_get_int64(value);
  } else if (id == kOutput) {
    settings.output = Output(g_value_get_enum(value));
  } else if (id == kQos) {
    settings.qos = g_value_get_boolean(value);
  } else if (id == kPostMessages) {
    settings.post_messages = g_value_get_boolean(value);
  } else {
    G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  GST_OBJECT_UNLOCK(object);
}

void get_property(GObject* object, guint id, GValue* value, GParamSpec* spec) {
  Element& element = element_of(object);
  if (id == kStats) return g_value_take_boxed(value, element.stats());
  GST_OBJECT_LOCK(object);
  Settings& settings = element.settings;
  if (id <= std::size(kTexts)) {
    g_value_set_string(value, (settings.*kTexts[id - 1].value).c_str());
  } else if (id == kFrames) {
    g_value_set_int64(value, settings.frames);
  } else if (id == kRate) {
    g_value_set_double(value, settings.rate);
  } else if (id == kOutput) {
    g_value_set_enum(value, int(settings.output));
  } else if (id == kQos) {
    g_value_set_boolean(value, settings.qos);
  } else if (id == kPostMessages) {
    g_value_set_boolean(value, settings.post_messages);
  } else {
    G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  GST_OBJECT_UNLOCK(object);
}

GstStateChangeReturn change_state(GstElement* object, GstStateChange change) {
  Element& element = element_of(object);
  if (change == GST_STATE_CHANGE_NULL_TO_READY && !element.read_config())
    return GST_STATE_CHANGE_FAILURE;
  if (change == GST_STATE_CHANGE_READY_TO_PAUSED) element.reset();
  if (change == GST_STATE_CHANGE_PAUSED_TO_READY) element.unblock();
  const GstStateChangeReturn done =
      GST_ELEMENT_CLASS(gst_millrace_parent_class)->change_state(object, change);
  if (change == GST_STATE_CHANGE_PAUSED_TO_READY) element.finish();
  return done;
}

void finalize(GObject* object) {
  delete reinterpret_cast<GstMillrace*>(object)->element;
  G_OBJECT_CLASS(gst_millrace_parent_class)->finalize(object);
}

constexpr auto kMade =
    GParamFlags(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
constexpr auto kMeanwhile =
    GParamFlags(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING);

void add_texts(GObjectClass* type) {
  for (guint id = 1; id <= std::size(kTexts); ++id) {
    const TextProperty& text = kTexts[id - 1];
    g_object_class_install_property(
        type, id, g_param_spec_string(text.name, text.nick, text.blurb, "", kMade));
  }
}

void add_others(GObjectClass* type) {
  const auto add = [&](guint id, GParamSpec* spec) {
    g_object_class_install_property(type, id, spec);
  };
  add(kFrames,
      g_param_spec_int64("frames", "Frames", "Frames to train, then the stream ends; 0: all", 0,
                         G_MAXINT64, 0, kMade));
  add(kRate, g_param_spec_double("rate", "Rate", "Learning rate, times the config's optimizer.lr",
                                 0, 1000, 1, GParamFlags(kMeanwhile | GST_PARAM_CONTROLLABLE)));
  add(kOutput, g_param_spec_enum("output", "Output", "What the pictures show", output_type(),
                                 int(Output::prediction), kMade));
  add(kQos, g_param_spec_boolean("qos", "QoS",
                                 "Leave out pictures that would be too late to be shown; their "
                                 "frames are learned from all the same",
                                 TRUE, kMeanwhile));
  add(kPostMessages,
      g_param_spec_boolean(
          "post-messages", "Post messages",
          "Post an element message for each prediction: frame, timestamp, loss, class", FALSE,
          kMeanwhile));
  add(kStats, g_param_spec_boxed("stats", "Statistics",
                                 "Frames that came, frames lost before they were learned from, "
                                 "pictures pushed, too late and not shown, the last loss",
                                 GST_TYPE_STRUCTURE,
                                 GParamFlags(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS)));
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
  add_texts(type);
  add_others(type);
  GstElementClass* const element = GST_ELEMENT_CLASS(made);
  element->change_state = change_state;
  gst_element_class_add_static_pad_template(element, &sink_template);
  gst_element_class_add_static_pad_template(element, &src_template);
  gst_element_class_set_static_metadata(
      element, "Millrace", "Filter/Effect/Video",
      "Learns from each frame with a neural network and shows what it predicts", "Millrace");
  gst_type_mark_as_plugin_api(output_type(), GstPluginAPIFlags(0));
}

/// What a pad receives, to the element.
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
