// A network learns from a video: hello [VIDEO]
#include <millrace/run.h>

#include <cstdio>

int main(int argc, char** argv) {
  millrace::Config config;
  config.set("source.uri", argc > 1 ? argv[1] : "synth:shapes");
  millrace::Run run(config);
  run.on_prediction([](const millrace::Prediction& p) {
    if (p.index % 50 == 49) std::printf("frame %3d  loss %.4f\n", int(p.index + 1), p.loss);
  });
  run.learn(300);
  run.save_weights("hello.safetensors");
}
