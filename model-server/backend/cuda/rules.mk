# The CUDA backend: backend-cuda.so beside the programs, loaded when it is asked for.
#
#   make cuda                 build it (NVCC=path if nvcc is not on PATH or in /usr/local/cuda)
#   CUDA_ARCHS="90"           only these architectures (quicker while developing); another list compiles again
#   CUDA_LINES=1              with lines of source for profilers and compute-sanitizer: 2.7 times as large
#   CUOBJDUMP=path            the disassembler, if it is neither beside nvcc, on PATH, nor in $(VENV)

NVCC       ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUOBJDUMP  ?= $(firstword $(wildcard $(dir $(realpath $(NVCC)))cuobjdump) $(shell command -v cuobjdump 2>/dev/null) \
              $(wildcard $(VENV)/lib/python3*/site-packages/nvidia/*/bin/cuobjdump))
CUDA_HOME  ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CXX        ?= c++
ifeq ($(origin CXX),default)
CXX        := c++
endif
CUDA_DIR   := model-server/backend/cuda
# sm_80 serves 8.x. 9.0 and later wait for their predecessors by griddepcontrol, so PTX for newer ones starts at 90.
CUDA_ARCHS ?= 80 90
# `make test` compiles for one architecture, which takes half of nvcc's time, unless the plugin was built for more. `.ci/run` names all.
CUDA_BUILT := $(B)/gen/cuda_archs
TEST_ARCHS  = $(if $(filter file,$(origin CUDA_ARCHS)),CUDA_ARCHS="$(or $(shell cat $(CUDA_BUILT) 2>/dev/null),90)")
CUDA_PTX   := -gencode=arch=compute_90,code=compute_90
CUDA_GEN   := $(foreach a,$(CUDA_ARCHS),-gencode=arch=compute_$(a),code=sm_$(a)) $(if $(filter 90,$(CUDA_ARCHS)),$(CUDA_PTX))
# wgmma exists on 9.0 alone, and only in code for sm_90a: there is no PTX of it for later devices. (-arch=sm_90a
# would compile for compute_90 as well, which has no such instruction.)
$(B)/obj/$(CUDA_DIR)/kernels/%_wgmma.cu.o: CUDA_GEN := -gencode=arch=compute_90a,code=sm_90a
# What tests/cuda_sass looks for in the machine code of a file.
CUDA_SASS_linear_wgmma  := HGMMA UTMALDG USETMAXREG
CUDA_SASS_linear_bytes_wgmma := HGMMA UTMALDG USETMAXREG
CUDA_SASS_linear_codes_wgmma := UTMALDG USETMAXREG
CUDA_SASS_linear_nibbles_wgmma := HGMMA UTMALDG USETMAXREG
CUDA_SASS_attention_wgmma := HGMMA UTMALDG USETMAXREG
CUDA_SASS_linear_experts_wgmma := HGMMA UTMALDG USETMAXREG
CUDA_SASS_linear_stream := LDGSTS
CUDA_SASS_experts_stream := LDGSTS
# Whose addresses tests/cuda_ptx checks, in the PTX for compute capability 9.0.
CUDA_PTX_GATED := $(if $(filter 90,$(CUDA_ARCHS)),$(patsubst %,$(B)/obj/$(CUDA_DIR)/kernels/attention_%.cu.o,f16 bf16 i8 fp8 i4))
cuda_sass = CUOBJDUMP="$(CUOBJDUMP)" tests/cuda_sass $(1) $(CUDA_SASS_$(basename $(basename $(notdir $(1)))))
# No silent fused multiply-adds, as everywhere.
NVCCFLAGS  := -std=c++17 -O3 -fmad=false $(if $(CUDA_LINES),-lineinfo) -I. -I$(B)/gen -Xcompiler -fPIC,-Wall,-fvisibility=hidden \
              -Werror all-warnings -Xptxas -v

CUDA_CU    := $(sort $(wildcard $(CUDA_DIR)/kernels/*.cu))
# nccl.h is only read; the library is looked for when several ranks meet.
NCCL_H     := $(firstword $(wildcard $(CUDA_HOME)/include/nccl.h /usr/include/nccl.h))
CUDA_C     := $(filter-out $(CUDA_DIR)/nccl%.c,$(sort $(wildcard $(CUDA_DIR)/*.c)))
NCCL_C     := $(CUDA_DIR)/$(if $(NCCL_H),nccl.c,nccl_none.c)
CUDA_OBJ   := $(CUDA_CU:%.cu=$(B)/obj/%.cu.o) $(CUDA_C:%.c=$(B)/obj/%.pic.o) $(NCCL_C:%.c=$(B)/obj/%.pic.o)
# What the plugin needs of the rest: it exports one symbol and imports none of the program's. Vectorised files are the programs' own
# objects; the others are compiled once more.
CUDA_REST  := common/err.c common/thread/spin.c common/utf8.c model-server/backend/threads.c $(filter-out $(FOREIGN),$(sort $(wildcard model-server/backend/host/*.c)))
CUDA_SAME  := $(patsubst %.c,$(B)/obj/%.o,$(filter $(UNROLL_SRC),$(CUDA_REST)))
CUDA_REST  := $(filter-out $(UNROLL_SRC),$(CUDA_REST))
CUDA_OBJ   += $(CUDA_SAME) $(CUDA_REST:%.c=$(B)/obj/%.pic.o)

ifneq ($(NVCC),)
cuda: $(B)/bin/backend-cuda.so  ## build the CUDA plugin
else
cuda:                  ## build the CUDA plugin
	@echo "cuda: left out (no nvcc on PATH or in /usr/local/cuda)"
endif

$(CUDA_BUILT): FORCE # objects for another list are compiled again
	@mkdir -p $(@D)
	@echo $(CUDA_ARCHS) | cmp -s - $@ || echo $(CUDA_ARCHS) > $@

# The registers, stack and spills of every kernel are kept beside its object for tests/cuda_spills. Instructions that
# a kernel is there for must be in what was assembled, and no trace of a rounding that nvcc drops in what was compiled.
$(B)/obj/%.cu.o: %.cu $(CUDA_BUILT) | $(GEN)
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCCFLAGS) $(CUDA_GEN) -MD -MP -MF $(@:.o=.d) -c $< -o $@ > $@.ptxas 2>&1 || { cat $@.ptxas; exit 1; }
	$(Q)tests/cuda_spills $@.ptxas
	$(Q)$(if $(CUDA_SASS_$(basename $(notdir $<))),$(call cuda_sass,$@))
	$(Q)$(if $(filter $(CUDA_PTX_GATED),$@),$(if $(CUOBJDUMP),CUOBJDUMP="$(CUOBJDUMP)" tests/cuda_ptx $@))

$(B)/obj/%.pic.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALLFLAGS) -isystem $(CUDA_HOME)/include -fPIC -fvisibility=hidden -c $< -o $@

$(B)/bin/backend-cuda.so: $(CUDA_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(OPT) $^ -L$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -ldl -lrt -lpthread -lm \
	  -Wl,--exclude-libs,ALL -Wl,-z,defs -o $@

# The checks of machine code once more, for objects that were built before there was a disassembler.
CUDA_GATED := $(patsubst CUDA_SASS_%,$(B)/obj/$(CUDA_DIR)/kernels/%.cu.o,$(filter CUDA_SASS_%,$(.VARIABLES)))
.PHONY: cuda-gates
cuda-gates: $(CUDA_GATED) $(CUDA_PTX_GATED)
	$(Q)$(foreach o,$(CUDA_GATED),$(call cuda_sass,$(o)) &&) $(if $(CUOBJDUMP),CUOBJDUMP="$(CUOBJDUMP)" tests/cuda_ptx $(CUDA_PTX_GATED),true)

# ---------------------------------------------------------------- tests without a GPU
# The same sources with tests/cuda_double in the place of CUDA: kernels run on the CPU, thread by thread.
DOUBLE     := $(B)/tests/cuda-double.so
DOUBLE_INC := -Itests/cuda_double -I. -I$(B)/gen
DOUBLE_OPT := -O2 -g1 # lines for stacks: a quarter less to compile than with -g; no sanitizers: they do not follow fibers
DOUBLE_CXX := -std=gnu++17 $(DOUBLE_OPT) -ffp-contract=off -fPIC -fvisibility=hidden -Wall -Werror \
              -Wno-unknown-pragmas -Wno-psabi -Wno-subobject-linkage -Wno-unused-function -DVERSION='"$(VERSION)"' -MMD -MP
DOUBLE_CC  := $(sort $(wildcard tests/cuda_double/*.cc))
DOUBLE_OBJ := $(CUDA_CU:%.cu=$(B)/double/%.cu.o) $(CUDA_C:%.c=$(B)/double/%.o) $(CUDA_SAME) $(CUDA_REST:%.c=$(B)/double/%.o) \
              $(B)/double/$(CUDA_DIR)/nccl.o $(DOUBLE_CC:%.cc=$(B)/double/%.o)

$(B)/double/%.cu.o: %.cu | $(GEN)
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) -x c++ $(DOUBLE_INC) $(DOUBLE_CXX) -c $< -o $@

$(B)/double/%.o: %.cc | $(GEN)
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(DOUBLE_INC) $(DOUBLE_CXX) -c $< -o $@

$(B)/double/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(DOUBLE_INC) $(BASEFLAGS) $(WARN) $(DOUBLE_OPT) $(ISA) -MMD -MP -fPIC -fvisibility=hidden -c $< -o $@

$(DOUBLE): $(DOUBLE_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared $(DOUBLE_OPT) $^ -lpthread -ldl -lm -Wl,-z,defs -o $@

-include $(shell find $(B)/double -name '*.d' 2>/dev/null)

ifeq ($(shell uname -m),x86_64)
ifneq ($(findstring cuda,$(CHOSEN)),)
unit-build: $(DOUBLE)
export CUDA_DOUBLE := $(DOUBLE)
endif
endif

# ---------------------------------------------------------------- tests and benchmarks with a GPU
# What a machine with a GPU needs besides the repository, in one folder, and packed in at most 64 MiB: programs, the libraries
# they load (all but glibc's), reference models. Made anywhere, run there by tests/gpu_check and tests/gpu_bench.
GPU_KIT    := $(B)/gpu-kit
GPU_TESTS  := $(patsubst tests/%.c,$(B)/tests/%,$(sort $(wildcard tests/*/cuda/test_cuda_*.c tests/bench/cuda_*.c)))
GPU_TESTS  := $(filter-out %/test_cuda_memory,$(GPU_TESTS)) # counts the memory of the stand-in, which a GPU does not show
.PHONY: gpu-kit gpu-check gpu-bench
gpu-kit: $(B)/bin/backend-cuda.so $(B)/bin/model-server $(GPU_TESTS)  ## pack the CUDA checks for another machine: build/gpu-kit
	@rm -rf $(GPU_KIT) && mkdir -p $(GPU_KIT)/lib $(GPU_KIT)/data
	@for f in $^; do strip -o $(GPU_KIT)/$$(basename $$f) $$f || exit 1; done
	@ldd $^ | awk '$$3 ~ /^\// && $$3 !~ /\/(ld-linux|lib(c|m|dl|rt|pthread)\.so)/ {print $$3}' | sort -u | \
	  xargs -I{} cp -L {} $(GPU_KIT)/lib/
	@for d in $$(sed -n 's|.*"\(arch/[a-z0-9_]*\)".*|\1|p; s|.*"\(quant/[a-z0-9_]*\)".*|\1|p; s|.*"\(models/stories[^"]*\)".*|\1|p' tests/golden/cuda/test_cuda_models.c | sort -u); do \
	  [ ! -d $(TEST_DATA)/$$d ] || { mkdir -p $(GPU_KIT)/data/$$d && cp -L $(TEST_DATA)/$$d/*.json $(TEST_DATA)/$$d/*.safetensors $(GPU_KIT)/data/$$d/; }; done
	@[ ! -d $(TEST_DATA)/vision ] || cp -rL $(TEST_DATA)/vision $(GPU_KIT)/data/
	@tar -C $(B) -c $(notdir $(GPU_KIT)) | xz -T0 -3 > $(GPU_KIT).tar.xz
	@du -sh $(GPU_KIT) $(GPU_KIT).tar.xz
	@[ $$(stat -c %s $(GPU_KIT).tar.xz) -le $$((64 << 20)) ] || { echo "gpu-kit: more than 64 MiB"; exit 1; }

gpu-check: gpu-kit     ## on a machine with a GPU: every kernel and whole models against the CPU backend, compute-sanitizer
	@tests/gpu_check $(GPU_KIT)

gpu-bench: gpu-kit     ## on a machine with a GPU: Llama shapes beside PyTorch and the machine's limits
	@tests/gpu_bench $(GPU_KIT)
