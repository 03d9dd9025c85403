# cloob with CUDA: compiled in NVIDIA's development image, installed with the run-time image's cuBLAS and cuDNN.
#   docker build -f packaging/containers/cuda.dockerfile -t cloob:cuda .
FROM nvidia/cuda:13.0.0-cudnn-devel-ubuntu24.04 AS build
RUN apt-get update && apt-get install -y --no-install-recommends build-essential cmake ninja-build pkg-config git libjpeg-dev \
    libpng-dev libwebp-dev libgif-dev libheif-dev libtiff-dev libutf8proc-dev zlib1g-dev libmicrohttpd-dev libcurl4-openssl-dev
COPY . /src
RUN cmake -S /src -B /build -G Ninja -DCLOOB_WITH_CUDA=ON "-DCLOOB_GPU_ARCHS=80;86;89;90a" && cmake --build /build --target \
    cloob cloob_shared cloob_public_archive && cmake --install /build --prefix /opt/cloob

FROM nvidia/cuda:13.0.0-cudnn-runtime-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 libjpeg8 libpng16-16t64 libwebp7 \
    libgif7 libutf8proc3 libheif1 libtiff6 libmicrohttpd12t64 libcurl4t64 ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/cloob /opt/cloob
ENV PATH=/opt/cloob/bin:$PATH HF_HOME=/models CLOOB_CACHE=/tmp/cloob
RUN useradd --system cloob
USER cloob
EXPOSE 8000
ENTRYPOINT ["cloob"]
