# Tally in a container: the program, the library with its headers, and the Python package.
#
#   docker build -t tally .
#   docker run --rm tally plan --model gpt2-124m --device H100
#   docker run --rm -v "$PWD:/work" tally train --data corpus.txt --out runs/mine
#   docker run --rm -it --entrypoint python3 tally
#
# The first stage builds, the second contains what was installed and the libraries that it needs. Without the CUDA
# plugin: for a GPU, build on an image that has CUDA and cuDNN (--build-arg BASE=...) and leave out CUDA=0
# (--build-arg CUDA=1).
ARG BASE=debian:12
FROM ${BASE} AS build
ARG CUDA=0
RUN apt-get update
WORKDIR /src
COPY scripts/install-deps scripts/
RUN scripts/install-deps && apt-get install -y --no-install-recommends python3-dev python3-numpy
COPY . .
RUN make -j"$(nproc)" CUDA=${CUDA} && make CUDA=${CUDA} DESTDIR=/staged PREFIX=/usr/local install && \
    make CUDA=${CUDA} python && \
    python3 tools/python_wheel.py --install /staged/usr/local/lib/python3/dist-packages build

FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends \
        libgomp1 libjansson4 libpcre2-8-0 zlib1g libzstd1 libmicrohttpd12 python3 python3-numpy \
        $(test "$(uname -m)" = aarch64 && echo libblis4-openmp liblapack3 || echo libopenblas0-openmp) && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /staged/ /
ENV PYTHONPATH=/usr/local/lib/python3/dist-packages
RUN ldconfig && tally --version && python3 -c 'import tally; assert tally.ones(2).sum().item() == 2'
WORKDIR /work
ENTRYPOINT ["tally"]
