# make            build everything this machine can build (the CUDA plugin only where nvcc is found)
# make help       list the targets
#
# Variants are other build directories, never other sources:  make SAN=1   make TSAN=1   make DEBUG=1
# A folder is a list: to add a .c file, put it into the folder of its component.

JOBS ?= $(shell nproc)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS)
endif
MAKEFLAGS += -r --no-print-directory
# make V=1 shows whole commands
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))
.DEFAULT_GOAL := all
CC        ?= cc
ifeq ($(origin CC),default)
CC        := cc
endif
BUILD     ?= build
VARIANT   := $(if $(SAN),san,$(if $(TSAN),tsan,$(if $(DEBUG),debug,)))
B         := $(BUILD)$(if $(VARIANT),/$(VARIANT))
VENV      ?= $(BUILD)/venv
PYTHON    := $(VENV)/bin/python
TEST_DATA ?= ../shared/data
PEERS     ?= $(BUILD)/peers
PREFIX    ?= /usr/local
VERSION   := $(shell cat VERSION)
# The front command, the folder in libexec, the image and the title of the docs (docs/decisions/name.md).
PRODUCT   := headrace

# ---------------------------------------------------------------- what we stand on (docs/dependencies.md)
PKGS      := grpc libprotobuf-c libmicrohttpd gnutls libcurl libcjson libpcre2-8 libutf8proc sqlite3 libpng libjpeg libwebp libwebpdemux libseccomp libzmq zlib libzstd
DEB_PAGE  := libjs-markdown-it node-dompurify node-highlight.js libjs-katex
DEB       := build-essential pkg-config protobuf-compiler protobuf-c-compiler libgrpc-dev libprotobuf-c-dev \
             libmicrohttpd-dev libgnutls28-dev libcurl4-gnutls-dev libwslay-dev libcjson-dev libpcre2-dev libutf8proc-dev libsqlite3-dev \
             libpng-dev libjpeg62-turbo-dev libwebp-dev libgif-dev libseccomp-dev libzmq3-dev zlib1g-dev libzstd-dev libcmocka-dev python3-venv curl $(DEB_PAGE)
LIBS      := -lgrpc -lgpr -lprotobuf-c -lmicrohttpd -lgnutls -lwslay -lcjson -lpcre2-8 -lutf8proc -lm -lpthread -ldl \
             -Wl,--push-state,--as-needed -lcurl -lsqlite3 -lpng -ljpeg -lwebp -lwebpdemux -lgif -lseccomp -lzmq -lz -lzstd -Wl,--pop-state

# ---------------------------------------------------------------- flags
WARN      := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
             -Wwrite-strings -Wpointer-arith -Wundef -Wvla -Wformat=2 -Wimplicit-fallthrough \
             -Wno-missing-field-initializers
OPT       := -O2 -g1
ifneq ($(SAN),)
OPT       := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
endif
ifneq ($(TSAN),)
OPT       := -O1 -g -fsanitize=thread
endif
ifneq ($(DEBUG),)
OPT       := -O0 -g
endif
# No silent fused multiply-adds: a result must not depend on what the compiler was told about the CPU.
BASEFLAGS := -std=gnu17 -D_GNU_SOURCE -fno-common -ffp-contract=off -I. -I$(B)/gen -DVERSION='"$(VERSION)"'
ALLFLAGS   = $(BASEFLAGS) $(WARN) $(OPT) $(CFLAGS) -MMD -MP $(ISA)
LINK       = $(CC) $(OPT) $(LDFLAGS)

# One instruction set, one file suffix, its own flags - and no such flag anywhere else.
# Sanitizers leave them out: instrumenting thousands of unrolled loads takes the compiler minutes. Their results are
# compared bit for bit with the instrumented reference, and valgrind runs the AVX2 ones (CPU_FEATURES=1).
# Debuggers get lines and no variables of them: where these are takes half of the compiler's time, and their names half of the
# object. The programs, the CUDA plugin and its stand-in have the same objects: position-independent, and visible within one of
# these alone.
UNROLLED  := -O3 -g1 -fno-math-errno -fno-var-tracking -fPIC -fvisibility=hidden $(if $(SAN)$(TSAN),-fno-sanitize=all)
%_avx2.o: ISA := -mavx2 -mfma -mf16c $(UNROLLED)
%_avxvnni.o: ISA := -mavxvnni -mavx2 -mfma -mf16c $(UNROLLED)
%_avx512vnni.o: ISA := -mavx512vnni -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c $(UNROLLED)
%_avx512bf16.o: ISA := -mavx512bf16 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c $(UNROLLED)
%_avx512fp16.o: ISA := -mavx512fp16 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c $(UNROLLED)
%_avx512amx.o: ISA := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c $(UNROLLED)
%_amx.o: ISA := $(UNROLLED)
%_neon.o: ISA := $(UNROLLED)
%_neondot.o: ISA := -march=armv8.2-a+dotprod $(UNROLLED)
%_neoni8mm.o: ISA := -march=armv8.2-a+dotprod+i8mm $(UNROLLED)
%_neonfp16.o: ISA := -march=armv8.2-a+fp16 $(UNROLLED)
%_avx512.o: ISA := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c $(UNROLLED)
UNROLL_SRC := %_avx2.c %_avxvnni.c %_avx512.c %_avx512vnni.c %_avx512bf16.c %_avx512fp16.c %_avx512amx.c %_amx.c %_neon.c %_neondot.c %_neoni8mm.c %_neonfp16.c

# ---------------------------------------------------------------- components
# Kernels of other processors are left out.
MACHINE   := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
FOREIGN   := $(if $(filter x86_64,$(MACHINE)),,%avx2.c %avxvnni.c %avx512.c %avx512vnni.c %avx512bf16.c %avx512fp16.c %_avx512amx.c %_amx.c) \
             $(if $(filter aarch64,$(MACHINE)),,%_neon.c %_neondot.c %_neoni8mm.c %_neonfp16.c)
sources    = $(filter-out $(FOREIGN),$(sort $(shell find $(1) -name '*.c' -not -path '*/cuda/*' 2>/dev/null)))
lib        = $(patsubst %.c,$(B)/obj/%.o,$(filter-out $(1)/main.c,$(call sources,$(1))))
COMPONENTS := common router launcher model-server
PROGRAMS  := router launcher model-server
PROTOS    := $(wildcard proto/*.proto)
GEN_SRC   := $(patsubst proto/%.proto,$(B)/gen/proto/%.pb-c.c,$(PROTOS))
PAGES     := $(foreach p,index docs,$(addprefix $(B)/gen/page/$p,.gz.inc .policy.h)) $(B)/gen/page/schemas.inc
GEN       := $(GEN_SRC) $(PAGES) $(B)/gen/archs.h $(B)/gen/routes.h $(B)/gen/visions.h $(B)/gen/towers.h $(B)/gen/backend_abi.h $(B)/gen/descriptors.inc $(B)/gen/calibration.inc
ARCHIVES  := $(foreach r,$(PROGRAMS) common proto,$(B)/lib/lib$(r).a)
BINS      := $(PROGRAMS:%=$(B)/bin/%)
UNIT_SRC  := $(sort $(shell find tests/unit tests/check tests/golden -name '*.c' 2>/dev/null))
UNIT      := $(UNIT_SRC:tests/%.c=$(B)/tests/%)
BENCH_SRC := $(sort $(wildcard tests/bench/*.c))
BENCH     := $(BENCH_SRC:tests/%.c=$(B)/tests/%)

.PHONY: all help deps run test slim vary-arch vary-keys vary-embed vary-encoders vary-tasks vary-pixels cross cross-serve soak soak-service unit unit-build jitter jitter-service integration faults clients check bench bench-build bench-compare bench-peers install install-files deb deb-test image image-files image-test clean format tidy cppcheck layers headers sentences fuzz fuzz-build fuzz-replay \
        distclean demo docs-pages docs-deps docs-site arm64 arm64-check
.PHONY: FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: $(BINS) cuda  ## build the three programs (and the CUDA plugin where nvcc is found)

help:                  ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / && !seen[$$1]++ {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---------------------------------------------------------------- dependencies
deps: $(BUILD)/.deps   ## install the Debian packages that pkg-config misses

$(BUILD)/.deps: Makefile
	@mkdir -p $(BUILD)
	@if pkg-config --exists $(PKGS) cmocka 2>/dev/null && command -v protoc protoc-c curl >/dev/null \
	    && printf '\043include <stdio.h>\n\043include <wslay/wslay.h>\n\043include <gif_lib.h>\n' | $(CC) -E - >/dev/null 2>&1 \
	    && python3 -c 'import ensurepip' 2>/dev/null; then :; else \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  echo "installing: $(DEB)"; \
	  $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(DEB); fi
	@[ "$(words $(PAGE_LIBS))" = 4 ] || { sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; echo "installing: $(DEB_PAGE)"; \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(DEB_PAGE) || echo "without them the chat page shows plain text"; }
	@touch $@

# Of 13,000 files of Python, the tests import some thousand: `collected` compiles these.
$(VENV)/.ok: integration/requirements.txt | $(BUILD)/.deps
	@mkdir -p $(dir $(VENV))
	[ -x $(PYTHON) ] || python3 -m venv $(VENV)
	$(PYTHON) -m pip install -q --disable-pip-version-check --no-compile -r $<
	@touch $@

# ---------------------------------------------------------------- generated code
# Both come of one run: objects whose .d names the header wait for it.
$(B)/gen/proto/%.pb-c.c $(B)/gen/proto/%.pb-c.h: proto/%.proto
	@mkdir -p $(@D)
	$(call say,PROTO,$<)
	$(Q)protoc-c --c_out=$(B)/gen $<

# All .proto files as one FileDescriptorSet, in bytes of C: what the reflection service hands out.
$(B)/gen/descriptors.inc: $(PROTOS)
	@mkdir -p $(@D)
	$(Q)protoc --descriptor_set_out=$@.bin $^
	$(Q)od -An -v -tu1 -w32 $@.bin | sed 's/  */,/g; s/^,//; s/$$/,/' > $@

# Pages for people: each with its scripts and styles in one file, the same compressed, and its policy; in bytes of C. What is shown as
# Markdown needs libraries of Debian's; without them the page is built all the same, and join says what it lacks.
PAGE_JS   ?= /usr/share
PAGE_LIBS := $(wildcard $(addprefix $(PAGE_JS)/,javascript/markdown-it/markdown-it.js nodejs/dompurify/dist/purify.min.js \
             nodejs/highlight.js/lib/highlight.js javascript/katex/katex.min.js))
$(B)/gen/page/libraries: Makefile FORCE # Debian's files are older than a page that was built without them
	@mkdir -p $(@D)
	@echo $(PAGE_LIBS) | cmp -s - $@ || echo $(PAGE_LIBS) > $@
BYTES      = od -An -v -tu1 -w32 | sed 's/  */,/g; s/^,//; s/$$/,/'
$(B)/gen/page/%.html: router/api/docs/%.html router/api/docs/join $(wildcard router/api/docs/chat/*) $(B)/gen/page/libraries
	@mkdir -p $(@D)
	$(Q)PAGE_JS=$(PAGE_JS) router/api/docs/join $< > $@
$(B)/gen/page/%.policy.h: $(B)/gen/page/%.html router/api/docs/policy
	$(Q)router/api/docs/policy $(shell echo $* | tr a-z A-Z) $< > $@
$(B)/gen/page/%.gz.inc: $(B)/gen/page/%.html
	$(Q)gzip -9nc $< | $(BYTES) > $@
$(B)/gen/page/%.inc: router/api/docs/%.json
	@mkdir -p $(@D)
	$(Q)cat $< | $(BYTES) > $@

# The text that `model-server quantize` reads where it is given none.
$(B)/gen/calibration.inc: model-server/quantize/calibration.txt
	@mkdir -p $(@D)
	$(Q)cat $< | $(BYTES) > $@

# Every file of a registry becomes one row: arch/llama.c -> ROW(llama), route_info.c -> ROW(info).
# A file that is the same keeps its time. `make test` runs two makes at once, so each writes its own.
replace = cmp -s $@.$$$$ $@ && rm $@.$$$$ || mv $@.$$$$ $@
define registry
	@mkdir -p $(@D)
	@for f in $(sort $(patsubst route_%,%,$(notdir $(basename $(1))))); do echo "ROW($$f)"; done > $@.$$$$; $(replace)
endef
# Where a file has several rows: const struct KIND PREFIX_name = ... -> ROW(name).
define registry_of
	@mkdir -p $(@D)
	@sed -n 's/^const struct $(1) $(2)_\([a-z0-9_]*\) = .*/ROW(\1)/p' $(sort $(3)) | LC_ALL=C sort > $@.$$$$; $(replace)
endef
# A plugin and a program that read other headers refuse each other: what crosses is in these and in what they include.
SEAM      := $(addprefix model-server/,backend/plugin.h backend/act.h comm/comm.h)
$(B)/gen/backend_abi.h: $(SEAM) Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) -I. -MM -MG $(SEAM) | tr ' ' '\n' | grep '/.*[.]h$$' | sort -u > $(@D)/backend_abi.headers
	$(Q)sed 's|.*|$@: &\n&:|' $(@D)/backend_abi.headers > $(@D)/backend_abi.d
	$(Q)xargs cat < $(@D)/backend_abi.headers | cksum | awk '{print "#define BACKEND_ABI " $$1 "u"}' > $@
-include $(B)/gen/backend_abi.d
$(B)/gen/archs.h: $(wildcard model-server/model/arch/*.c) model-server/model/arch Makefile
	$(call registry,$(wildcard model-server/model/arch/*.c))
$(B)/gen/routes.h: $(wildcard router/api/*/route_*.c router/api/*) Makefile
	$(call registry,$(wildcard router/api/*/route_*.c))
$(B)/gen/visions.h: $(wildcard common/vision/*.c) common/vision Makefile
	$(call registry_of,vision_family,vision,$(wildcard common/vision/*.c))
$(B)/gen/towers.h: $(wildcard model-server/encoder/family/*.c) model-server/encoder/family Makefile
	$(call registry_of,encoder_family,family,$(wildcard model-server/encoder/family/*.c))

# ---------------------------------------------------------------- compile and link
$(B)/obj/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALLFLAGS) -c $< -o $@

$(B)/obj/gen/%.o: $(B)/gen/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASEFLAGS) $(OPT) -c $< -o $@

$(B)/lib/libproto.a: $(GEN_SRC:$(B)/gen/%.c=$(B)/obj/gen/%.o)
define archive
$(B)/lib/lib$(1).a: $(call lib,$(1))
endef
$(foreach r,$(COMPONENTS),$(eval $(call archive,$(r))))
$(ARCHIVES):
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $^

# Without what nothing refers to, and with relocations packed where the linker can (binutils 2.38, read by glibc 2.36): 5 % smaller.
RELR  := -Wl,-z,pack-relative-relocs
SLIM   = $(if $(SAN)$(TSAN),,-Wl,--gc-sections $(shell echo 'int main(void) { return 0; }' | $(CC) -xc - -Wl,--fatal-warnings $(RELR) -o /dev/null 2>/dev/null && echo $(RELR)))
define program
$(B)/bin/$(1): $(B)/obj/$(1)/main.o $(B)/lib/lib$(1).a $(B)/lib/libcommon.a $(B)/lib/libproto.a
	@mkdir -p $$(@D)
	$$(call say,LINK,$$@)
	$$(Q)$$(LINK) $$(SLIM) $$^ $(if $(filter launcher,$(1)),$(filter-out -lmicrohttpd -lgnutls -lwslay,$(LIBS)),$(LIBS)) -o $$@
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p))))

# The same three in one program for the image, where size counts: what is C++ or parses no secrets is linked from archives, gRPC without what
# its clients and servers of one cluster never use. TLS, libcurl, libc and the libraries that these need stay shared.
SLIM_DIR    ?= $(B)/slim
UNUSED_GRPC := RegisterExtraFilters RegisterRlsLbPolicy RegisterGrpcLbPolicy RegisterRingHashLbPolicy RegisterWeightedTargetLbPolicy \
               RegisterOutlierDetectionLbPolicy RegisterPriorityLbPolicy FaultInjectionFilterRegister RegisterFakeResolver
SLIM_UNUSED  = $(foreach f,$(UNUSED_GRPC),-Wl,--defsym=_ZN9grpc_core$(shell printf %s $f | wc -c)$fEPNS_17CoreConfiguration7BuilderE=unused_grpc)
SLIM_SHARED := ssl crypto z dl rt atomic
SLIM_GRPC    = $(filter-out $(SLIM_SHARED:%=-l%),$(shell pkg-config --static --libs-only-l grpc))
SLIM_LIBS    = -Wl,-Bstatic -Wl,--start-group $(SLIM_GRPC) -Wl,--end-group -lprotobuf-c -lmicrohttpd -lpcre2-8 -lutf8proc -lsqlite3 -lpng -ljpeg \
               -lwebp -lwebpdemux -lgif -lseccomp -lzmq -lsodium -lnorm -lprotokit -lpgm -lbsd -lmd -lstdc++ \
               -Wl,-Bdynamic -lssl -lcrypto -lgnutls -lwslay -lcjson -lcurl -lz -lzstd -lgssapi_krb5 -lm -lpthread -ldl
define part
$(B)/obj/slim/$(1).o: $(B)/obj/$(1)/main.o $(B)/lib/lib$(1).a
	@mkdir -p $$(@D)
	$$(Q)$$(LD) -r $$^ -o $$@ && objcopy --redefine-sym main=$(subst -,_,$(1))_main --keep-global-symbol=$(subst -,_,$(1))_main $$@
endef
$(foreach p,$(PROGRAMS),$(eval $(call part,$(p))))
slim: $(SLIM_DIR)/$(PRODUCT)  ## the three programs as one with fewer shared libraries, in build/slim: what the image holds
$(SLIM_DIR)/$(PRODUCT): $(B)/obj/common/main.o $(PROGRAMS:%=$(B)/obj/slim/%.o) $(B)/lib/libcommon.a $(B)/lib/libproto.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(LINK) $(SLIM) -Wl,-t $^ $(SLIM_UNUSED) $(SLIM_LIBS) -o $@ > $@.files
	$(Q)for p in $(PROGRAMS); do ln -f $@ $(@D)/$$p; done

# A test is compiled apart from its link: the compiler cache keeps the one, and the other is a fraction of a second. The time of unit and
# golden tests is the programs', so they are not optimised, which takes a third of the compiler's time; the sanitizers' build has the warnings
# for which it has to optimise.
ifeq ($(VARIANT),)
$(B)/obj/tests/unit/%.o $(B)/obj/tests/golden/%.o: OPT := -O0 -g
endif
$(B)/obj/tests/%.o: tests/%.c | $(GEN)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALLFLAGS) -Wno-write-strings -DTEST_DATA='"$(TEST_DATA)"' -c $< -o $@

$(B)/tests/unit/common/rpc/test_rpc_pack: LDFLAGS += -Wl,--wrap=malloc
$(B)/tests/unit/common/rpc/test_rpc_server: LDFLAGS += -Wl,--wrap=calloc
$(B)/tests/unit/router/fleet/test_dns: LDFLAGS += -Wl,--wrap=getaddrinfo
$(B)/tests/unit/router/fleet/test_adapt: LDFLAGS += -Wl,--wrap=infer_change,--wrap=infer_adapters
$(B)/tests/unit/common/constraint/test_no_memory: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
$(B)/tests/%: $(B)/obj/tests/%.o $(ARCHIVES)
	@mkdir -p $(@D)
	$(call say,TEST,$@)
	$(Q)$(LINK) $< -Wl,--start-group $(ARCHIVES) -Wl,--end-group -lcmocka $(LIBS) -o $@

# ---------------------------------------------------------------- to try it and to test it
run: $(BUILD)/.deps    ## install what is missing, build, serve the bundled demo model on PORT (3000)
	@$(MAKE) all
	@echo; echo "  try:  curl -N localhost:$(or $(PORT),3000)/generate_stream -H 'content-type: application/json' \\"
	@echo "             -d '{\"inputs\":\"Once upon a time\",\"parameters\":{\"max_new_tokens\":60}}'"; echo
	$(B)/bin/launcher --model-id models/demo --port $(or $(PORT),3000)

# One make builds for all tests, so that no core is idle while packages come from the network, or between one part and the next, and
# then all tests run at once. The Python environment is first: one process after another makes it, beside which the other core compiles.
# What cannot be built fails once more, where it is counted, and then one part after the other. Unit tests have less weight: integration
# tests wait for a fifth of their time, in which unit tests have the cores until the end, and deadlines of services depend less on them.
test: $(BUILD)/.deps   ## everything that can be tested here: unit, kernels, golden, integration (SAN=1 for sanitizers)
	@together=--together; \
	$(MAKE) $(TEST_ARCHS) -k collected all $(if $(VARIANT),,slim) unit-build || { together=; $(MAKE) $(TEST_ARCHS) all; }; \
	tests/verdict $$together 'nice -n 4 $(MAKE) unit' '$(MAKE) $(TEST_ARCHS) integration'

# A run of `make test` is like the run before. Here every round draws its seeds anew, and says how to repeat it.
soak: $(BUILD)/.deps   ## make test with new random numbers, N (1) times; T=word selects
	@for i in $$(seq $(or $(N),1)); do seed=$$(od -An -N7 -tu8 /dev/urandom | tr -d ' '); \
	  echo "soak: make test SEED=$$seed"; \
	  $(MAKE) test SEED=$$seed AGAIN=0 || { echo "to repeat this: make test SEED=$$seed"; exit 1; }; done

SOAK ?= 60
soak-service: $(BINS) $(VENV)/.ok  ## the demo under everything at once for SOAK (60) seconds, shards killed; SAN=1: with sanitizers
	@BIN_DIR=$(B)/bin SAN=$(SAN) $(PYTHON) integration/soak.py --seconds $(SOAK)

CHOSEN := $(if $(T),$(foreach u,$(UNIT),$(if $(findstring $(T),$u),$u)),$(UNIT))
unit-build: $(CHOSEN)
unit: unit-build       ## unit, kernel and golden tests; T=word selects
	@JOBS=$(JOBS) BUILD_DIR=$(B) TEST_DATA=$(TEST_DATA) TSAN_OPTIONS=suppressions=tests/tsan.supp tests/run $(CHOSEN)

# Files of tests run side by side: two for each core, because tests wait for half of their time, and four at most. Each worker
# imports all of them, but of pytest's plugins only the one that is used. pytest compiles them as well, for 5 s of the 7: what it
# made is kept, also where the environment asks Python not to. The tests run the one program of `make slim`: a start takes three
# quarters of the time of the three programs, and there are 1,500 of them. Where it cannot be linked, they run the three.
SIDE_BY_SIDE = -p xdist -n $(shell echo $$(($(JOBS) < 2 ? 2 : 4))) --dist loadfile --no-loadscope-reorder
TESTED       = $(if $(VARIANT),$(B)/bin,$$([ -x $(SLIM_DIR)/$(PRODUCT) ] && echo $(SLIM_DIR) || echo $(B)/bin))
PYTEST_ENV   = BIN_DIR=$(TESTED) TEST_DATA=$(TEST_DATA) SAN=$(SAN) PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE= PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
integration: $(BINS) $(VENV)/.ok  ## drive the real programs with real clients; T=word selects
	@$(if $(VARIANT),,$(MAKE) slim || rm -rf $(SLIM_DIR))
	@$(PYTEST_ENV) tests/integrate $(PYTHON) $(SIDE_BY_SIDE) \
	  integration --ignore integration/clients $(if $(T),-k '$(T)' || [ $$? = 5 ])

# Compiled once beside the build, and not by every worker. What cannot be imported is counted when the tests run.
.PHONY: collected
collected: $(VENV)/.ok
	@$(PYTEST_ENV) $(PYTHON) -m pytest -q --collect-only integration --ignore integration/clients >$(BUILD)/collected.log 2>&1 || true

faults: $(BINS) $(VENV)/.ok  ## kill, stop and end every process in every phase; writes docs/results/faults.md (3 to 15 minutes)
	@BIN_DIR=$(B)/bin $(PYTHON) integration/faults/matrix.py --write docs/results/faults.md

$(B)/tests/%.so: tests/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c17 -O2 -fPIC -shared $(WARN) $< -o $@ -ldl
JITTERED := $(foreach u,$(filter $(B)/tests/unit/router/% $(B)/tests/unit/common/rpc/test_rpc%,$(UNIT)),$(if $(findstring $(T),$u),$u))
jitter: $(JITTERED) $(B)/tests/jitter.so  ## tests with threads, N (10) times, with a random delay at each call of the thread library; T=word selects
	@for i in $$(seq $(or $(N),10)); do for t in $(JITTERED); do \
	  LD_PRELOAD=$(B)/tests/jitter.so TEST_DATA=$(TEST_DATA) $$t >$(B)/jitter.log 2>&1 || \
	    { cat $(B)/jitter.log; echo "$$t failed in round $$i"; exit 1; }; done; done; echo "$(words $(JITTERED)) programs, $(or $(N),10) rounds: no failure"

JITTER_T ?= invariance or pressure or speculation or draft_model or kv_tiers or kv_transfer or restart or windows or recurrent
jitter-service: $(BINS) $(VENV)/.ok $(B)/tests/jitter.so  ## whole services with such delays in every process; SEED=N, JITTER_US=N, T=word select
	@BIN_DIR=$(B)/bin TEST_DATA=$(TEST_DATA) PRELOAD=$(abspath $(B))/tests/jitter.so JITTER_SEED=$(or $(SEED),1) JITTER_US=$(or $(JITTER_US),1000) \
	  PYTHONHASHSEED=0 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(PYTHON) -m pytest -q --no-header integration --ignore integration/clients -k '$(or $(T),$(JITTER_T))'

CLIENTS_VENV ?= $(BUILD)/clients-venv
$(CLIENTS_VENV)/.ok: integration/requirements-clients.txt
	@mkdir -p $(dir $(CLIENTS_VENV))
	[ -x $(CLIENTS_VENV)/bin/python ] || python3 -m venv $(CLIENTS_VENV)
	while read -r p; do p=$${p%%\#*}; case "$$p" in '') ;; *) \
	  $(CLIENTS_VENV)/bin/python -m pip install -q --disable-pip-version-check "$$p" || echo "not installable: $$p";; esac; done < $<
	@touch $@

clients: $(BINS) $(B)/tests/tools/schema_cases $(CLIENTS_VENV)/.ok  ## litellm, LangChain, text-generation, lm-eval (an environment of their own; large)
	@BIN_DIR=$(B)/bin TEST_DATA=$(TEST_DATA) SCHEMATHESIS_EXAMPLES=500 $(CLIENTS_VENV)/bin/python -m pytest -q -rs integration/clients integration/api/test_openapi.py

# What expected values are made with: 6 GB, for tests alone.
TORCH_VENV ?= $(BUILD)/venv-torch
$(TORCH_VENV)/.ok:
	[ -x $(TORCH_VENV)/bin/python ] || python3 -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install -q --disable-pip-version-check torch 'transformers>=5' safetensors peft 'sentence-transformers>=5.4' requests gguf
	@touch $@

vary-arch: $(B)/bin/model-server $(TORCH_VENV)/.ok  ## random configurations of every family against transformers (N each, 8; T=model_types; large)
	@$(TORCH_VENV)/bin/python tests/golden/vary/vary_arch.py -n $(or $(N),8) $(T)

vary-keys: $(B)/bin/model-server $(TORCH_VENV)/.ok  ## one key of config.json at a time, in every family, against transformers (T=model_types)
	@$(TORCH_VENV)/bin/python tests/golden/vary/vary_keys.py $(T)

vary-encoders: $(B)/tests/golden/test_embed $(TORCH_VENV)/.ok  ## one key of config.json at a time, in every encoder, against transformers (T=names of make_embed.py)
	@$(TORCH_VENV)/bin/python tests/golden/vary/vary_encoders.py $(T)

vary-embed: $(BINS) $(TORCH_VENV)/.ok  ## random models of sentence-transformers against that package (N of them, 40; large)
	@BIN_DIR=$(B)/bin TEST_DATA=$(TEST_DATA) $(TORCH_VENV)/bin/python tests/golden/vary/vary_embed.py -n $(or $(N),40)

vary-tasks: $(BINS)  ## random classifiers and models that answer questions against transformers' pipelines (N of them, 40; PYTHON4 has transformers 4 and torch)
	@BIN_DIR=$(B)/bin TEST_DATA=$(TEST_DATA) $(PYTHON4) tests/golden/vary/vary_tasks.py -n $(or $(N),40)

cross: $(B)/bin/model-server $(TORCH_VENV)/.ok  ## random families in random stored formats and types against transformers (N, 200; FIRST; T=words)
	@$(TORCH_VENV)/bin/python tests/golden/vary/cross.py -n $(or $(N),200) --first $(or $(FIRST),0) --only '$(T)'

cross-serve: $(BINS) $(TORCH_VENV)/.ok  ## the same with ranks, adapters, drafts, chunks and lost shards, through the real programs (N, 60; FIRST; T=words)
	@$(TORCH_VENV)/bin/python tests/golden/vary/cross_serve.py -n $(or $(N),60) --first $(or $(FIRST),0) --only '$(T)'

vary-pixels: $(B)/tests/bench/pixels $(TORCH_VENV)/.ok  ## settings of image processors at random, against transformers (T=names; Pillow 12.3)
	@$(TORCH_VENV)/bin/python tests/golden/vary/vary_pixels.py $(TEST_DATA)/vision $(T)

# ---------------------------------------------------------------- quality
SOURCES = $(sort $(shell find common router launcher model-server tests -name '*.[ch]' 2>/dev/null))
CSRC    = $(filter-out $(FOREIGN),$(filter %.c,$(filter-out tests/%,$(SOURCES))))

check: $(GEN) layers headers sentences format tidy cppcheck  ## format, warnings, clang-tidy, cppcheck, layers, sentences

format:                ## fail where clang-format would change a line (make format FIX=1 mends)
	@clang-format $(if $(FIX),-i,--dry-run --Werror) $(SOURCES)

tidy: $(GEN)           ## clang-tidy over the programs
	@printf '%s\n' $(CSRC) | xargs -P $(shell nproc) -n 4 tests/tidy $(B)/gen

cppcheck: $(GEN)       ## cppcheck over the programs
	@cppcheck --quiet -j 2 --enable=warning,performance,portability --error-exitcode=1 --inline-suppr \
	  --suppress=missingIncludeSystem --suppressions-list=tests/cppcheck.supp -I. -I$(B)/gen \
	  --include=$$(pkg-config --variable=includedir libcjson)/cjson/cJSON.h $(COMPONENTS)

layers:                ## common includes no component; programs never include each other; model-server's folders include by their rules
	@tests/layers

sentences:             ## documents and public headers have no sentence of more than 25 words
	@tests/sentences

HEADERS = $(foreach h,$(filter-out tests/%,$(filter %.h,$(SOURCES))),$(if $(filter %.inc.h,$h),,$h))
headers: $(GEN)        ## every header compiles alone
	@printf '%s\n' $(HEADERS) | xargs -P $(JOBS) -n 32 $(CC) $(BASEFLAGS) $(WARN) -Itests/cuda_double -Wno-unused-function -fsyntax-only -x c

bench-build: $(BENCH)  ## the programs of bench, so that a change of an interface does not break them unseen
bench: all $(BENCH)    ## ratios against the machine's limits, and against the peers in PEERS (BENCH_FLAGS="--quick --rows ...")
	@for b in $(filter-out %/limits,$(BENCH)); do echo "== $$b"; BIN_DIR=$(B)/bin TEST_DATA=$(TEST_DATA) $$b || exit 1; done
	@if $(PYTHON) -c 'import tokenizers' 2>/dev/null && [ -d $(TEST_DATA)/tokenizers ]; then \
	  echo "== tokenizers from PyPI"; $(PYTHON) integration/bench/tokenizer_peer.py llama3; \
	else echo "skipped: the tokenizer peer (pip install tokenizers in $(VENV); reference data in $(TEST_DATA))"; fi
	@$(MAKE) bench-compare

bench-compare: all $(B)/tests/bench/limits  ## the forward pass and serving beside llama.cpp, OpenVINO and CTranslate2
	@echo "== the CPU engine beside its peers"
	@python3 integration/bench/compare.py --build $(B) --peers $(PEERS) $(BENCH_FLAGS)

bench-peers:           ## install those peers into PEERS and make their files: 20 GB, half an hour
	@JOBS=$(JOBS) integration/bench/install_peers.sh $(PEERS)

# What a fuzzer is linked from is in its own first lines. Its objects are clang's, with libFuzzer's counters, and shared.
FUZZ      := $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/*.c)))
FUZZFLAGS := -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_NOW   = $(if $(T),$(foreach f,$(FUZZ),$(if $(findstring $(T),$f),$f)),$(FUZZ))
$(BUILD)/fuzz/obj/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(Q)clang $(BASEFLAGS) $(FUZZFLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c $< -o $@
define fuzzer
$(BUILD)/fuzz/$(1): $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,tests/fuzz/$(1).c $(wildcard $(shell sed -n 's|^// *fuzz-sources: *||p' tests/fuzz/$(1).c)))
	$$(call say,FUZZ,$$@)
	$$(Q)clang $$(FUZZFLAGS) -fsanitize=fuzzer $$^ $$(LIBS) -o $$@
endef
# The same without clang: gcc's sanitizers, the corpus and fixed variants of it. A run is like the run before.
$(BUILD)/replay/obj/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASEFLAGS) $(FUZZFLAGS) -MMD -MP -c $< -o $@
define replayer
$(BUILD)/replay/$(1): $(patsubst %.c,$(BUILD)/replay/obj/%.o,tests/fuzz_replay.c tests/fuzz/$(1).c $(wildcard $(shell sed -n 's|^// *fuzz-sources: *||p' tests/fuzz/$(1).c)))
	$$(call say,FUZZ,$$@)
	$$(Q)$(CC) $$(FUZZFLAGS) $$^ $$(LIBS) -o $$@
endef
ifneq ($(filter fuzz%,$(MAKECMDGOALS)),)
$(foreach f,$(FUZZ),$(eval $(call fuzzer,$f)))
$(foreach f,$(FUZZ),$(eval $(call replayer,$f)))
-include $(shell find $(BUILD)/fuzz/obj $(BUILD)/replay/obj -name '*.d' 2>/dev/null)
endif
fuzz-build: $(FUZZ_NOW:%=$(BUILD)/fuzz/%)
fuzz: fuzz-build       ## each parser of foreign bytes for FUZZ_SECONDS (10) under libFuzzer; T=word selects
	@for n in $(FUZZ_NOW); do mkdir -p $(BUILD)/fuzz/$$n.corpus; \
	  $(BUILD)/fuzz/$$n -max_total_time=$(or $(FUZZ_SECONDS),10) -verbosity=0 -print_final_stats=0 -timeout=10 \
	    -artifact_prefix=$(BUILD)/fuzz/ $(BUILD)/fuzz/$$n.corpus $$(ls -d tests/fuzz/corpus/$$n 2>/dev/null) || exit 1; done

fuzz-replay: $(FUZZ_NOW:%=$(BUILD)/replay/%)  ## each parser's corpus and MUTATIONS (300) variants of each file, without clang; T=word selects
	@printf '%s\n' $(FUZZ_NOW) | xargs -P $(JOBS) -n 1 sh -c '$(BUILD)/replay/$$0 tests/fuzz/corpus/$$0'

# ---------------------------------------------------------------- another processor
# Debian's libraries for 64-bit ARM, unpacked; nothing of them runs here but under qemu.
ARM64      := aarch64-linux-gnu
ARM64_ROOT := $(BUILD)/arm64-root
ARM64_LIBS := libc6-dev libstdc++-12-dev $(filter-out libjs-%,$(filter lib%,$(DEB)))
ARM64_CC   := $(ARM64)-gcc --sysroot=$(abspath $(ARM64_ROOT))
comma      := ,
empty      :=
$(ARM64_ROOT)/.ok:
	@rm -rf $(ARM64_ROOT)
	mmdebstrap --quiet --variant=extract --architectures=arm64 --include=$(subst $(empty) $(empty),$(comma),$(strip $(ARM64_LIBS))) \
	  $$(. /etc/os-release; echo $$VERSION_CODENAME) $(ARM64_ROOT)
	@touch $@

arm64: $(ARM64_ROOT)/.ok ## the programs for 64-bit ARM in build/arm64 (apt-get install gcc-aarch64-linux-gnu mmdebstrap)
	@$(MAKE) CC='$(ARM64_CC)' AR=$(ARM64)-ar BUILD=$(BUILD)/arm64 NVCC= $(PROGRAMS:%=$(BUILD)/arm64/bin/%)

# The kernels alone: of the rest of the backend only what they call is kept.
ARM64_CPU  := $(wildcard $(foreach d,cpu/kernels host,$(addprefix model-server/backend/$d/,kernels.c cpu_features.c round.c *_ref.c *_neon.c *_neondot.c *_neoni8mm.c *_neonfp16.c))) \
              model-server/backend/cpu/codes.c model-server/backend/format.c
arm64-check: $(ARM64_ROOT)/.ok $(GEN) ## the kernels for 64-bit ARM under an emulator, bit by bit (apt-get install qemu-user, too)
	@$(MAKE) CC='$(ARM64_CC) -ffunction-sections' BUILD=$(BUILD)/arm64 $(ARM64_CPU:%.c=$(BUILD)/arm64/obj/%.o) $(BUILD)/arm64/obj/tests/check/test_kernels.o
	$(call say,TEST,$(BUILD)/arm64/tests/check/test_kernels)
	@mkdir -p $(BUILD)/arm64/tests/check
	$(Q)$(ARM64_CC) -Wl,--gc-sections $(ARM64_CPU:%.c=$(BUILD)/arm64/obj/%.o) $(BUILD)/arm64/obj/tests/check/test_kernels.o -lcmocka -lm -lpthread \
	  -o $(BUILD)/arm64/tests/check/test_kernels
	@QUICK=1 qemu-aarch64 -cpu max -L $(ARM64_ROOT) $(BUILD)/arm64/tests/check/test_kernels && echo '1 passed, 0 failed'

# ---------------------------------------------------------------- docs
docs-pages: $(BINS)    ## write the pages of docs/ that are printed by programs or from registries
	@python3 integration/docs/docs_pages.py $(B)/bin

$(VENV)/.docs-ok: docs/requirements.txt | $(BUILD)/.deps
	@mkdir -p $(dir $(VENV))
	[ -x $(PYTHON) ] || python3 -m venv $(VENV)
	$(PYTHON) -m pip install -q --disable-pip-version-check -r $<
	@touch $@

docs-deps: $(VENV)/.docs-ok
docs-site: $(VENV)/.docs-ok  ## docs/ as a site in build/site; a warning is an error
	@$(VENV)/bin/mkdocs build --strict --site-dir $(abspath $(BUILD))/site

# ---------------------------------------------------------------- install
# Under PREFIX: the front command and the drop-in names in bin, the programs in libexec/PRODUCT, pages and completions in share.
install: all           ## the front command, the programs, man pages and completions under PREFIX (/usr/local)
	@$(MAKE) install-files

BIN_DIR   ?= $(B)/bin
LIBEXEC   := $(DESTDIR)$(PREFIX)/libexec/$(PRODUCT)
install-files:         ## the same from programs that are already built in BIN_DIR
	install -d $(DESTDIR)$(PREFIX)/bin $(LIBEXEC)
	install -m 755 $(PROGRAMS:%=$(BIN_DIR)/%) $(wildcard $(BIN_DIR)/backend-cuda.so) $(LIBEXEC)/
	install -m 755 launcher/front/front.sh $(DESTDIR)$(PREFIX)/bin/$(PRODUCT)
	ln -sf ../libexec/$(PRODUCT)/launcher $(DESTDIR)$(PREFIX)/bin/text-generation-launcher
	ln -sf ../libexec/$(PRODUCT)/router $(DESTDIR)$(PREFIX)/bin/text-generation-router
	ln -sf ../libexec/$(PRODUCT)/model-server $(DESTDIR)$(PREFIX)/bin/text-generation-server
	launcher/front/pages.sh $(PRODUCT) $(VERSION) $(BIN_DIR) $(DESTDIR)$(PREFIX)/share

# ---------------------------------------------------------------- packages
# From a copy of the tree, so that dpkg's files stay out of it. DEB_PKG is what it takes beside DEB.
DEB_PKG   := debhelper lintian
deb:                   ## a Debian package in build/deb, checked by lintian (apt-get install debhelper lintian)
	@command -v dh lintian >/dev/null || { echo "make deb needs: $(DEB_PKG)"; exit 1; }
	@[ "$$(dpkg-parsechangelog -S Version)" = "$(VERSION)" ] || { echo "debian/changelog and VERSION differ"; exit 1; }
	rm -rf $(BUILD)/deb/tree && mkdir -p $(BUILD)/deb/tree && rm -f $(BUILD)/deb/*.deb
	tar -c --exclude=./$(BUILD) --exclude=./.git . | tar -x -C $(BUILD)/deb/tree
	cd $(BUILD)/deb/tree && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS dpkg-buildpackage -us -uc -b -j$(JOBS) >../build.log 2>&1 || { tail -30 ../build.log; exit 1; }
	lintian --allow-root --fail-on error,warning $(BUILD)/deb/*.changes
	@ls -l $(BUILD)/deb/*.deb

deb-test: $(VENV)/.ok   ## the package of make deb in a fresh Debian, run by systemd (apt-get install mmdebstrap podman runc)
	@PACKAGE=$$(ls $(BUILD)/deb/$(PRODUCT)_$(VERSION)_*.deb) $(PYTHON) -m pytest -q -rs integration/packaging/test_package.py

# ---------------------------------------------------------------- images
# The last stage of docker/Dockerfile, from the program in SLIM_DIR; CUDA=1 adds the plugin, NCCL=PATH that library. Needs no registry and no base image.
IMAGE     := localhost/$(PRODUCT):$(VERSION)$(if $(CUDA),-cuda)
IMAGE_DIR := $(BUILD)/image$(if $(CUDA),-cuda)
CONTAINER_DEB := buildah podman runc catatonit
image: slim $(if $(CUDA),cuda)  ## an image as a tar in build/image, in Docker's format (apt-get install buildah runc); CUDA=1: with the plugin
	@$(MAKE) image-files

image-files:           ## the same from what is already built in SLIM_DIR
	@command -v buildah >/dev/null || { echo "make image needs: $(CONTAINER_DEB)"; exit 1; }
	rm -rf $(IMAGE_DIR) && mkdir -p $(IMAGE_DIR)/context
	docker/rootfs.sh $(SLIM_DIR) $(IMAGE_DIR)/context/out $(if $(CUDA),$(BIN_DIR)/backend-cuda.so $(NCCL))
	buildah bud --quiet --format docker --isolation chroot --timestamp 0 --build-context build=$(abspath $(IMAGE_DIR)/context) \
	  -f docker/Dockerfile -t $(IMAGE) $(IMAGE_DIR)/context
	buildah push --quiet $(IMAGE) docker-archive:$(IMAGE_DIR)/$(PRODUCT)-$(VERSION).tar:$(IMAGE)
	rm -rf $(IMAGE_DIR)/context
	@ls -l $(IMAGE_DIR)

image-test: slim $(BINS) $(VENV)/.ok  ## run the image under podman: read-only, any uid, no capabilities, drain, health, a pod
	@BIN_DIR=$(B)/bin $(PYTHON) -m pytest -q -rs integration/packaging/test_image.py

-include $(wildcard model-server/backend/cuda/rules.mk)
.PHONY: cuda
ifeq ($(wildcard model-server/backend/cuda/rules.mk),)
cuda: ;
endif

clean:                 ## remove what was built (keeps the Python environment)
	rm -rf $(BUILD)/obj $(BUILD)/lib $(BUILD)/bin $(BUILD)/gen $(BUILD)/tests $(BUILD)/san $(BUILD)/tsan $(BUILD)/debug $(BUILD)/fuzz $(BUILD)/replay $(BUILD)/double $(BUILD)/gpu-kit

distclean:             ## remove build/
	rm -rf $(BUILD)

-include $(shell find $(B)/obj $(B)/tests -name '*.d' 2>/dev/null)
