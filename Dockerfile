# Millrace on CPU cores, made of Debian's and PyPI's packages alone:
#   docker build -t millrace . && docker run --rm -v "$PWD:/work" millrace run my.toml
FROM debian:12 AS build
WORKDIR /src
# Layers of their own: a changed source downloads nothing again and compiles what changed.
COPY tools/setup tools/packages.txt tools/requirements.txt tools/
RUN tools/setup packages
COPY . .
RUN --mount=type=cache,target=/root/.cache/ccache \
    tools/package -DMILLRACE_TESTS=OFF -DMILLRACE_DEMOS=OFF
# What the program loads of LibTorch's wheel and of CUDA's, as they lie to one another.
RUN cd .venv/lib/python3*/site-packages \
 && mkdir /libraries \
 && ldd /src/build/release/millrace | grep -o '/src/.venv[^ ]*' | xargs realpath --relative-to=. \
  | xargs cp --archive --parents --target-directory=/libraries

FROM debian:12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates curl gstreamer1.0-plugins-good gstreamer1.0-libav \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /libraries /usr/lib/millrace
RUN --mount=type=bind,from=build,source=/src/build/packages,target=/packages \
    apt-get update \
 && apt-get install -y --no-install-recommends /packages/millrace_*.deb \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home millrace \
 && install -d -o millrace -g millrace /work \
 && millrace --version
USER millrace
WORKDIR /work
ENTRYPOINT ["millrace"]
CMD ["--help"]
