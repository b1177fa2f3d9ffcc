# Millrace on CPU cores, made of Debian's and PyPI's packages alone:
#   docker build -t millrace . && docker run --rm -v $PWD:/work millrace run my.toml
FROM debian:12 AS build
WORKDIR /src
COPY . .
RUN tools/package -DMILLRACE_TESTS=OFF -DMILLRACE_DEMOS=OFF \
 && mv .venv/lib/python3*/site-packages /site-packages

FROM debian:12-slim
COPY --from=build /src/build/packages/millrace_*.deb /tmp/
# The package looks for LibTorch here; its wheel finds CUDA's libraries beside itself.
COPY --from=build /site-packages/torch /usr/lib/millrace/torch
COPY --from=build /site-packages/nvidia /usr/lib/millrace/nvidia
RUN apt-get update \
 && apt-get install -y --no-install-recommends /tmp/millrace_*.deb gstreamer1.0-plugins-good gstreamer1.0-libav \
 && rm -rf /var/lib/apt/lists/* /tmp/millrace_*.deb \
 && millrace --version
WORKDIR /work
ENTRYPOINT ["millrace"]
CMD ["--help"]
