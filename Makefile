# Tally's build. One file, GNU make; `make help` prints the lines that start with "#:".
#
#: make                  the library (shared and static), the program, tally.pc; the CUDA plugin where nvcc is found
#: make test             build and run every C test (tests/test_*.c); TESTS="shape rng" runs some
#: make asan             the same tests under AddressSanitizer and UndefinedBehaviorSanitizer
#: make tsan             the tests with threads (tests/test_threads.c, test_einops.c, test_loader.c) under
#:                       ThreadSanitizer
#: make fuzz             libFuzzer on the readers of patterns and files (tests/fuzz), under the sanitizers; FUZZ="files"
#:                       and FUZZ_READERS="tokens" choose; FUZZ_SECONDS=60 or FUZZ_RUNS=N each, from FUZZ_SEED=1;
#:                       FUZZ_JOBS=2 runs two at a time
#: make sweep            price against receipt in 500 random configurations;
#:                       SWEEP="--device cuda --runs 200 --seconds 450"
#: make soak             kill training runs 1,000 times and damage their files in between (tests/soak/run --help);
#:                       SOAK="--kills 50 --seed 7"
#: make soak-ranks       loss curves of 50 steps in every layout on 2, 3 and 4 processes, and price against receipt in
#:                       105 random layouts (tests/soak/ranks); RANKS="--steps 10 --layouts 5 --seed 7"
#: make asan-ranks       experts that several processes divide, under the sanitizers (tests/soak/asan-ranks)
#: make soak-kills       kill a rank of training runs of 4 processes 100 times, and resume on 2 (tests/soak/rank-kills);
#:                       KILLS="--kills 20 --seed 7"
#: make soak-machines    train on two machines made of network namespaces, as root (tests/soak/machines)
#: make fuzz-programs    20,000 command lines and 2,000 damaged files of each kind, each a process under the sanitizers
#:                       (tests/fuzz/command_lines.py and mutate.py); FUZZ_PROGRAMS="--runs 100 --seed 7" goes to both
#: make bench            build and run the benchmarks (bench/bench_*.c); BENCH="dispatch" runs some of them, BENCH=ops
#:                       is the table of op speeds beside PyTorch's (needs a Python with torch: PYTHON=, build/venv)
#: make cuda             the CUDA plugin, build/libtally_cuda.so
#: make cuda-on-cpu      the same kernels compiled for a GPU made of the CPU, with their tests, in build/on-cpu; needs
#:                       CUDA's and cuDNN's headers, and no GPU (tests/cuda_on_cpu/run)
#: make mpi              the plugins for the MPI libraries that are installed, build/libtally_openmpi.so and
#:                       build/libtally_mpich.so; `make` makes them too
#: make python           the compiled binding of the Python package; without it the package uses ctypes. PYTHON=python3
#: make wheel            build/dist/tally-*.whl: the Python package with the library (without CUDA), as `pip install .`
#:                       makes it
#: make wheel-cuda       build/dist/tally_cuda-*.whl: the CUDA plugin for that wheel, for all GPU generations unless
#:                       CUDA_ARCHS says otherwise
#: make planner-page     build/planner.html: the planner as one page for a browser, through WebAssembly; needs Debian's
#:                       emscripten and nodejs (scripts/install-deps --page). `make install` installs it if it is there
#: make install          into PREFIX (/usr/local), staged under DESTDIR; `make uninstall` removes it
#: make docs             write the tables in docs/ that are generated from the sources
#: make format           format the C sources as .clang-format says, and wrap comments that are too long
#: make clean            remove what this Makefile built (a Python environment in build/venv stays)
#:
#: BLAS=blis|openblas    the matrix library; default: BLIS on aarch64, OpenBLAS elsewhere, or the other if it is missing
#: WERROR=1              warnings are errors (the test run does this)
#: ISAS="avx2"           instruction sets to compile the cpu kernels for, besides the baseline; default: all of
#:                       isa_list.h; "most": only the most capable one of this processor, faster to build
#: CUDA=0                leave out the CUDA plugin even if nvcc is found
#: CUDA_ARCHS="90"       GPU generations to compile for: numbers, or native (the GPUs in this machine, if nvidia-smi
#:                       shows any: the default) or all (7.5 to 12.x, for a build that travels; one takes a seventh of
#:                       the time). `make install` and later builds keep the choice, in build/cuda.mk
#: NVCC=, CUDA_HOME=     where CUDA is (default: nvcc on PATH, else /usr/local/cuda); CUDNN_HOME= if cuDNN is elsewhere
#: RPATH=0               no run paths in what is linked, for a distribution: the loader finds every library by itself
#: PLUGINDIR=            where plugins are installed (default: LIBDIR)
#: MPIS="openmpi"        the MPI libraries to make plugins for (default: those that are installed)
#: CFLAGS=, LDFLAGS=     your own compiler and linker options; PKG_CONFIG_PATH is respected
#: V=1                   show whole commands
#
# How it hangs together: every source becomes a position-independent object under build/obj; all objects of the
# library are then joined into one relocatable object, build/tally.o. From that single object come the shared
# library, the static one (hidden names made local first, so that only tl_* is left to clash with yours), the program
# and every test. Tests and program thus reach internal functions, which the finished libraries do not show.

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:
SHELL := /bin/bash

# The version is defined once, in the public header.
VERSION := $(shell sed -n 's/^.define TL_VERSION "\(.*\)"/\1/p' include/tally.h)
SONAME  := libtally.so.$(firstword $(subst ., ,$(VERSION)))

BUILD      ?= build
PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
PLUGINDIR  ?= $(LIBDIR)
RPATH      ?= 1
INCLUDEDIR ?= $(PREFIX)/include
DOCDIR     ?= $(PREFIX)/share/doc/tally
MANDIR     ?= $(PREFIX)/share/man
# Where the shells look for completions.
BASHDIR    ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR     ?= $(PREFIX)/share/zsh/site-functions
FISHDIR    ?= $(PREFIX)/share/fish/vendor_completions.d
INSTALL    ?= install
OBJCOPY    ?= objcopy
PKG_CONFIG ?= pkg-config
ifeq ($(origin CC),default)
CC  := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif

comma := ,
say    = $(if $(V),,@printf '  %-8s %s\n' $(1) '$(2)';)
on     = $(filter-out 0 no,$($(1)))

# ---------------------------------------------------------------------------------------------- sources, by folder

CPU_SRC     := $(wildcard src/device/cpu/*.c src/device/cpu/*/*.c)
# What a price needs of a device is part of the library, also where the device's kernels are a plugin.
CUDA_HOST   := $(addprefix src/device/cuda/,rules.c targets.c driver.c)
# Compiled once for each MPI library.
MPI_SRC     := src/comm/mpi.c
LIB_SRC     := $(sort $(filter-out src/cli/% $(MPI_SRC),$(wildcard src/*/*.c)) $(wildcard src/device/meta/*.c) \
                 $(CPU_SRC) $(CUDA_HOST))
CLI_SRC     := $(sort $(wildcard src/cli/*.c))
# What every op call passes: compiled as one by gcc, which is worth a tenth to a fifth of the time of a small op.
CORE_SRC    := $(filter-out src/tensor/convert.c src/base/rng.c src/ops/print.c,\
                 $(wildcard src/base/*.c src/tensor/*.c src/account/*.c src/engine/*.c src/ops/*.c src/autograd/*.c \
                   src/einops/*.c))
CUDA_SRC    := $(sort $(filter-out $(CUDA_HOST),\
                 $(foreach ext,c cu,$(wildcard src/device/cuda/*.$(ext) src/device/cuda/*/*.$(ext)))))
SUPPORT_SRC := $(sort $(wildcard tests/support/*.c))
TESTS       ?= $(patsubst tests/test_%.c,%,$(sort $(wildcard tests/test_*.c)))
BENCH       ?= $(patsubst bench/bench_%.c,%,$(sort $(wildcard bench/bench_*.c)))

objects      = $(patsubst %,$(BUILD)/obj/%.o,$(1))
# What takes longest starts first: at the end, no core waits for one long test.
LONG_TESTS  := train_ranks comm samples plan train parallel folder sweep gemm einops_errors cpu_blocks
TEST_BINS   := $(patsubst %,$(BUILD)/tests/test_%,$(filter $(TESTS),$(LONG_TESTS)) $(filter-out $(LONG_TESTS),$(TESTS)))
BENCH_BINS  := $(patsubst %,$(BUILD)/bench/bench_%,$(filter-out ops,$(BENCH)))
PYTHON      ?= $(or $(wildcard build/venv/bin/python),python3)

# ---------------------------------------------------------------------------------------------------- compiler flags

# -ffp-contract=off: a*b+c rounds twice everywhere unless the source says fma(), so that every chip gives the same bits.
# A missing prototype is always an error: a function that tally.h does not declare is hidden in the library.
# A program may give its threads small stacks, so no frame is larger than this; large buffers come from base/scratch.h.
# With link-time optimisation the core is compiled when it is joined, so it is checked there too. Sanitizers enlarge
# frames and are not checked.
# ISO C promises no string longer than 4,095 characters; every compiler that builds this takes longer help texts.
FRAMES    := $(if $(SANITIZE),,-Wframe-larger-than=16384)
STRICT    := -std=c17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wvla -Walloca $(FRAMES) \
             -Wno-overlength-strings -Werror=missing-prototypes -Werror=implicit-function-declaration \
             $(if $(call on,WERROR),-Werror)
CODEGEN   := -ffp-contract=off -fno-math-errno -fvisibility=hidden -fPIC -fopenmp
LINKSAFE  := -Wl,-z,relro,-z,now -Wl,--no-undefined -Wl,-Bsymbolic

# A sanitizer build has its own folder (BUILD=) and less optimisation, so that reports name real lines.
ifdef SANITIZE
CFLAGS    ?= -O1 -g1 -fno-omit-frame-pointer
CODEGEN   += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all
SANLINK   := -fsanitize=$(SANITIZE)
# No reader of files calls a kernel. With checks, clang takes as long over kernels as over the rest; `make asan` has
# them, by gcc.
$(if $(findstring fuzzer,$(SANITIZE)),$(foreach f,$(CPU_SRC) src/tensor/convert.c src/base/rng.c,$(eval \
  FLAGS_$(f) := -fno-sanitize=all)))
else
CFLAGS    ?= -O2 -g
# Kernels live in long loops and want -O3; what happens once per op call lives in short ones, which -O3 makes slower.
KERNEL_CFLAGS ?= -O3
$(foreach f,$(CPU_SRC) src/tensor/convert.c src/base/rng.c,$(eval FLAGS_$(f) := $(KERNEL_CFLAGS)))
CODEGEN   += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector
# gcc clears a struct of 100 bytes by "rep stos" on x86, which takes 10 ns: a twentieth of an op call. clang does not.
CLEARING  := -mmemset-strategy=unrolled_loop:256:noalign,libcall:-1:noalign
CODEGEN   += $(shell echo | $(CC) $(CLEARING) -x c -c -o /dev/null - 2>/dev/null && echo $(CLEARING))
endif

# -------------------------------------------------------------------------------------------------- instruction sets

# Every cpu kernel is compiled for the compiler's default and again for each of these; src/device/cpu/isa.c chooses at
# start. The names are those of isa_list.h. The objects of each copy are joined, and all names except that of its table
# are made local.
MACHINE    := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
# Nothing reads the floating-point exception flags, and preserving them makes gcc floor and truncate one element at a
# time on x86. On aarch64 the flag is not needed, and it makes comparisons slower.
CODEGEN    += $(if $(filter x86_64,$(MACHINE)),-fno-trapping-math)
# Where gcc 12 vectorises products and alternating sums of pairs, it makes one instruction of both there, with one
# rounding, whatever -ffp-contract says: vfmaddsub.
$(foreach f,$(if $(filter x86_64,$(MACHINE)),complex fft),\
    $(eval FLAGS_src/device/cpu/ops/$(f).c += -fno-tree-vectorize))
ISAS_aarch64 := fp16 bf16
ISAS_x86_64  := avx2 avx512 avx512bf16 amx
ISA_FLAGS_fp16       := -march=armv8.2-a+fp16+dotprod
ISA_FLAGS_bf16       := -march=armv8.2-a+fp16+dotprod+bf16+i8mm
ISA_FLAGS_avx2       := -mavx2 -mfma -mf16c -mbmi -mbmi2
ISA_FLAGS_avx512     := $(ISA_FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_FLAGS_avx512bf16 := $(ISA_FLAGS_avx512) -mavx512bf16
ISA_FLAGS_amx        := $(ISA_FLAGS_avx512bf16) -mamx-tile -mamx-bf16 -mamx-int8
# As /proc/cpuinfo names what the set needs most.
ISA_NEEDS_fp16       := asimdhp
ISA_NEEDS_bf16       := bf16
ISA_NEEDS_avx2       := avx2
ISA_NEEDS_avx512     := avx512bw
ISA_NEEDS_avx512bf16 := avx512_bf16
ISA_NEEDS_amx        := amx_bf16
# Sanitizer builds use only the most capable set besides the baseline that this processor has: the sources are the same.
ISAS       ?= $(if $(SANITIZE),most,$(ISAS_$(MACHINE)))
ifneq ($(filter most,$(ISAS)),)
PROCESSOR  := $(shell sed -n '/^\(flags\|Features\)/{s/.*: //p;q}' /proc/cpuinfo 2>/dev/null)
override ISAS := $(lastword $(foreach i,$(ISAS_$(MACHINE)),$(if $(filter $(ISA_NEEDS_$i),$(PROCESSOR)),$i)))
endif
# A set that differs from another only in instructions which no compiler uses on its own, but the sources do. A file
# that asks for none of them is the same for both and is compiled once (tools/compile_isa).
ISA_LIKE_bf16       := fp16
ISA_LIKE_avx512bf16 := avx512
ISA_LIKE_amx        := avx512bf16
KERNEL_SRC := $(filter-out %/parallel.c,$(wildcard src/device/cpu/ops/*.c src/device/cpu/shared/*.c)) \
              src/tensor/convert.c src/base/rng.c

# ---------------------------------------------------------------------------------------------------------- libraries

# BLAS must be an OpenMP build: a second thread pool beside ours would fight it for the cores. Debian keeps each build
# in a folder of its own and lets an "alternatives" link choose one, so name the OpenMP folder, when linking and in the
# run path. BLIS has no .pc file there. Your own builds, found through PKG_CONFIG_PATH, come first.
ifneq ($(filter-out clean docs format help uninstall cuda-why wheel wheel-cuda,$(or $(MAKECMDGOALS),all)),)
DEBLIB    := /usr/lib/$(shell $(CC) -print-multiarch 2>/dev/null)
# Libraries that are not installed may be unpacked under .deps/ARCH with dpkg -x.
UNPACKED  := $(subst $(eval ) ,:,$(wildcard $(CURDIR)/.deps/*$(DEBLIB)/pkgconfig))
pkg        = PKG_CONFIG_PATH="$$PKG_CONFIG_PATH:$(UNPACKED):$(DEBLIB)/openblas-openmp/pkgconfig" $(PKG_CONFIG)
has        = $(shell $(pkg) --exists $(1) 2>/dev/null && echo $(1))
# No warnings from other projects' headers: -isystem.
cflags     = $(patsubst -I%,-isystem %,$(shell $(pkg) --cflags $(1) 2>/dev/null))
has_blis   = $(or $(call has,blis),$(if $(wildcard $(DEBLIB)/blis-openmp/libblis.so),blis))
has_openblas = $(call has,openblas)

ifeq ($(shell command -v $(PKG_CONFIG)),)
$(error pkg-config is missing, it finds the libraries. \
    Debian, Ubuntu: apt install pkg-config, or run scripts/install-deps)
endif
ifeq ($(call has,jansson),)
$(error The library jansson (JSON) was not found. \
    Debian, Ubuntu: apt install libjansson-dev, or run scripts/install-deps)
endif

ifeq ($(call has,libpcre2-8),)
$(error The library PCRE2 (patterns of tokenizers) was not found. \
    Debian, Ubuntu: apt install libpcre2-dev, or run scripts/install-deps)
endif

ifeq ($(call has,zlib),)
$(error The library zlib (gzip files) was not found. \
    Debian, Ubuntu: apt install zlib1g-dev, or run scripts/install-deps)
endif
ifeq ($(call has,libzstd),)
$(error The library zstd (zst files) was not found. \
    Debian, Ubuntu: apt install libzstd-dev, or run scripts/install-deps)
endif

BLAS_WANTED := $(BLAS)
IS_ARM    := $(filter aarch64%,$(shell uname -m))
BLAS_HERE := $(if $(IS_ARM),$(or $(has_blis),$(has_openblas)),$(or $(has_openblas),$(has_blis)))
override BLAS := $(or $(BLAS_WANTED),$(BLAS_HERE))
ifeq ($(BLAS),)
$(error No CBLAS was found. Debian, Ubuntu: \
    apt install $(if $(IS_ARM),libblis-openmp-dev,libopenblas-openmp-dev), or run scripts/install-deps)
endif
ifeq ($(filter blis openblas,$(BLAS)),)
$(error BLAS=$(BLAS) is unknown: use BLAS=blis or BLAS=openblas)
endif
ifeq ($(has_$(BLAS)),)
$(error BLAS=$(BLAS) was asked for and not found. Debian, Ubuntu: apt install lib$(BLAS)-openmp-dev)
endif

ifeq ($(call has,$(BLAS)),)
BLAS_CFLAGS := -isystem $(subst /lib/,/include/,$(DEBLIB))/blis-openmp
BLAS_LIBS   := -L$(DEBLIB)/blis-openmp -lblis
else
BLAS_CFLAGS := $(call cflags,$(BLAS))
BLAS_LIBS   := $(patsubst %/,%,$(shell $(pkg) --libs $(BLAS)))
ifneq ($(findstring USE_OPENMP=0,$(shell $(pkg) --variable=openblas_config $(BLAS))),)
$(info note: this OpenBLAS has its own thread pool besides OpenMP's; libopenblas-openmp-dev is faster)
endif
endif

# LAPACK (matrix factorisations): OpenBLAS contains it; beside another BLAS it is a library of its own. A build without
# it refuses these ops.
links_lapack = $(shell echo 'void dpotrf_(void); int main(void) { dpotrf_(); return 0; }' | \
                 $(CC) -x c -o /dev/null - $(1) $(LDFLAGS) 2>/dev/null && echo yes)
ifneq ($(call links_lapack,$(BLAS_LIBS)),)
BLAS_CFLAGS += -DTALLY_LAPACK=1
else ifneq ($(call links_lapack,$(BLAS_LIBS) -llapack),)
BLAS_CFLAGS += -DTALLY_LAPACK=1
BLAS_LIBS   += -llapack
else
$(info note: no LAPACK was found, so this build refuses matrix factorisations. \
    Debian, Ubuntu: apt install liblapack-dev)
endif

# The code asks TALLY_BLAS_BLIS or TALLY_BLAS_OPENBLAS when it must know (setting the number of threads).
BLAS_CFLAGS += -DTALLY_BLAS_$(if $(filter blis,$(BLAS)),BLIS,OPENBLAS)=1
NEEDED      := jansson libpcre2-8 zlib libzstd
LIBS        := $(shell $(pkg) --libs $(NEEDED)) $(BLAS_LIBS)
rpaths       = $(if $(call on,RPATH),$(sort $(patsubst -L%,-Wl$(comma)-rpath$(comma)%,$(filter -L%,$(1)))))
LINK_LIBS   := $(LIBS) $(call rpaths,$(LIBS)) -fopenmp -lm -ldl -lpthread
ALL_CFLAGS  := $(STRICT) $(CODEGEN) $(CFLAGS) -Iinclude -Isrc $(CPPFLAGS) $(call cflags,$(NEEDED)) \
               $(BLAS_CFLAGS)
# The server of `tally watch`; a build without it has no such command.
ifneq ($(call has,libmicrohttpd),)
WATCH_LIBS  := $(shell $(pkg) --libs libmicrohttpd)
FLAGS_src/cli/cmd_watch.c := -DTALLY_MICROHTTPD=1 $(call cflags,libmicrohttpd)
endif
CMOCKA_CFLAGS = $(call cflags,cmocka)
CMOCKA_LIBS = $(or $(shell $(pkg) --libs cmocka 2>/dev/null),$(error The library cmocka (tests) was not found. \
              Debian, Ubuntu: apt install libcmocka-dev, or run scripts/install-deps --tests))
endif

# The plugin is opened by name; $ORIGIN lets the loader find it beside the library, the program, or one folder up.
ORIGIN     = $(if $(call on,RPATH),-Wl$(comma)-rpath$(comma)'$$ORIGIN$(1)')
# A folder of their own is named, since the loader does not search it otherwise.
PLUGINS    = $(if $(filter-out $(LIBDIR),$(PLUGINDIR)),-Wl$(comma)-rpath$(comma)$(PLUGINDIR))

# ---------------------------------------------------------------------------------------------------------------- CUDA

# The plugin is opened at run time, gets everything from the library through a table, and may need nothing but CUDA.
#
# What was chosen when it was built last holds until something else is given: `sudo make install`, whose environment has
# neither the variables nor the PATH of `make`, installs what was built. An explicit `make cuda` needs no CUDA=1.
CUDA_GOALS := $(filter all install,$(or $(MAKECMDGOALS),all))
-include $(BUILD)/cuda.mk
CUDA      ?= $(if $(CUDA_GOALS),$(or $(CUDA_KEPT),1),1)
ifeq ($(origin NVCC),undefined)
NVCC      := $(firstword $(if $(CUDA_HOME),,$(wildcard $(NVCC_KEPT))) $(shell command -v nvcc 2>/dev/null) \
               $(wildcard $(or $(CUDA_HOME),/usr/local/cuda)/bin/nvcc))
endif
CUDA_HOME ?= $(if $(NVCC),$(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC))))),/usr/local/cuda)
CUDNN_HOME ?= $(CUDA_HOME)
NVCC_KNOWS = $(shell $(NVCC) --list-gpu-code 2>/dev/null)
# Code for a generation also runs on its later minor versions: 86 on 8.7, 100 on 10.3. 89 is separate, since it has
# 8-bit products.
CUDA_ALL   = $(filter $(NVCC_KNOWS:sm_%=%),75 80 86 89 90 100 120)
# The generations of the GPUs in this machine: of each compute capability ("9.0"), the newest code that runs on it.
CUDA_HERE  = $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
               grep -E '^[0-9]+\.[0-9]$$' | tr -d . | sort -un | \
               while read gpu; do found=; for code in $(CUDA_ALL); do \
               [ $$((code / 10)) != $$((gpu / 10)) ] || [ $$code -gt $$gpu ] || found=$$code; done; echo $$found; done)
CUDA_ARCHS ?= $(or $(CUDA_ARCHS_KEPT),native)
CUDA_FOUND = $(if $(filter native,$(CUDA_ARCHS)),$(filter $(CUDA_HERE),$(CUDA_ALL)))
# Found once, and only where CUDA code is compiled.
CUDA_GENERATIONS = $(eval CUDA_GENERATIONS := $$(or $$(filter-out native all,$$(CUDA_ARCHS)),$$(CUDA_FOUND),\
                     $$(CUDA_ALL)))$(CUDA_GENERATIONS)
# Hopper's warpgroup products are in 90a alone, which no other generation runs.
CUDA_CODES = $(patsubst 90,90a,$(CUDA_GENERATIONS))
CUDA_INC   = $(addprefix -isystem ,$(sort $(CUDA_HOME)/include $(CUDNN_HOME)/include))
CUDA_LIBS ?= $(addprefix -L,$(sort $(wildcard $(CUDA_HOME)/lib64 $(CUDNN_HOME)/lib64 $(CUDNN_HOME)/lib))) \
             -lcudart -lcublasLt -lcudnn -ldl
CUDA_RPATHS ?= $(call rpaths,$(CUDA_LIBS))
# Machine code for each generation, and PTX of the newest for future GPUs. --fmad=false: see -ffp-contract.
NVCCFLAGS ?= -O3 -g
NVCC_ALL   = -std=c++17 $(NVCCFLAGS) --fmad=false -Iinclude -Isrc $(CUDA_INC) \
             -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
             $(if $(call on,WERROR),-Werror all-warnings) \
             $(foreach a,$(CUDA_CODES),-gencode arch=compute_$(a),code=sm_$(a)) \
             $(foreach a,$(lastword $(CUDA_CODES)),-gencode arch=compute_$(a),code=compute_$(a))

ifeq ($(call on,CUDA),)
NO_CUDA := it was switched off (CUDA=0)
else ifeq ($(CUDA_SRC),)
NO_CUDA := src/device/cuda is empty
else ifeq ($(NVCC),)
NO_CUDA := nvcc was not found (for GPUs: install the CUDA toolkit and cuDNN 9, or give NVCC= or CUDA_HOME=)
endif
ifeq ($(call on,CUDA)$(filter command environment,$(origin CUDA)),)
NO_CUDA := it was switched off before (make CUDA=1 builds the plugin)
endif

# --------------------------------------------------------------------------------------------------------- what to make

.PHONY: all lib python wheel wheel-cuda mpi cuda cuda-on-cpu cuda-found cuda-skipped cuda-refused cuda-why test tests \
    asan tsan asan-ranks fuzz fuzz-run fuzz-programs soak soak-ranks soak-kills soak-machines sweep bench docs format \
    install uninstall clean help FORCE

all: lib mpi $(if $(NO_CUDA),cuda-skipped,cuda-found)
lib: $(BUILD)/libtally.so $(BUILD)/libtally.a $(BUILD)/tally.pc $(if $(CLI_SRC),$(BUILD)/tally)

cuda-skipped:
	@echo '  CUDA     skipped: $(NO_CUDA)'
	@$(if $(call on,CUDA),,mkdir -p $(BUILD); echo 'CUDA_KEPT := 0' >$(BUILD)/cuda.mk)
cuda-found: $(BUILD)/libtally_cuda.so
cuda: $(if $(NO_CUDA),cuda-refused,cuda-found)
cuda-why: # for scripts: why there will be no plugin, or nothing
	@echo '$(NO_CUDA)'
cuda-refused:
	@echo 'The CUDA plugin cannot be built: $(NO_CUDA).' >&2; exit 1

# Some installations of gcc lack the part that does it (and clang has no such option): try.
probe = d=$$(mktemp -d) && echo 'int probe;' >$$d/a.c && $(CC) -flto -c -o $$d/a.o $$d/a.c && \
        $(CC) -r -nostdlib -flto=2 -flinker-output=nolto-rel -o $$d/b.o $$d/a.o && echo -flto; rm -rf "$$d"
WHOLE := $(if $(SANITIZE),,$(shell { $(probe); } 2>/dev/null))
$(call objects,$(CORE_SRC)): EXTRA_CFLAGS = $(WHOLE)
# Without sanitizers: clang would put their runtime into the object, and again into every program.
$(BUILD)/core.o: $(call objects,$(CORE_SRC))
	$(call say,JOIN,$@)$(CC) -r -nostdlib $(filter-out -fsanitize=%,$(CODEGEN)) $(CFLAGS) $(FRAMES) \
	    $(if $(call on,WERROR),-Werror) $(if $(WHOLE),-flto=2 -flinker-output=nolto-rel) -o $@ $^

isa_like = $(filter $(ISA_LIKE_$(1)),$(ISAS))
define isa_rules
$(BUILD)/obj/isa/$(1)/%.c.o: %.c $(BUILD)/flags $(patsubst %,$(BUILD)/obj/isa/%/%.c.o,$(call isa_like,$(1)))
	$$(call say,CC,$$< ($(1)))mkdir -p $$(@D) && tools/compile_isa $$@ $$< \
	    '$(patsubst %,$(BUILD)/obj/isa/%,$(call isa_like,$(1)))' \
	    $$(CC) $$(ALL_CFLAGS) $$(FLAGS_$$<) -DCPU_KERNELS=cpu_kernels_$(1) $(ISA_FLAGS_$(1))
$(BUILD)/isa-$(1).o: $(KERNEL_SRC:%=$(BUILD)/obj/isa/$(1)/%.o)
	$$(call say,JOIN,$$@)$$(CC) -r -nostdlib -o $$@ $$^ && $$(OBJCOPY) --keep-global-symbol=cpu_kernels_$(1) $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rules,$(isa))))

# The texts of web pages, as bytes: a string of C may have 4,095.
PAGE_FILES := $(sort $(wildcard src/page/*.css src/page/*.js))
$(BUILD)/page_files.c: $(PAGE_FILES) Makefile
	$(call say,WRITE,$@)mkdir -p $(@D) && { echo '#include "page/page.h"'; for f in $(PAGE_FILES); do n=$${f##*/}; \
	    echo "static const unsigned char $${n//[!a-z]/_}[] = {"; od -An -v -tu1 $$f | sed 's/\([0-9]\)\( \|$$\)/\1,\2/g'; \
	    echo '};'; done; echo 'const struct page_file page_files[] = {'; for f in $(PAGE_FILES); do n=$${f##*/}; \
	    echo "    {\"$$n\", $${n//[!a-z]/_}, sizeof $${n//[!a-z]/_}},"; done; echo '    {0}};'; } >$@
$(BUILD)/page_files.o: $(BUILD)/page_files.c src/page/page.h $(BUILD)/flags
	$(call say,CC,$<)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(BUILD)/tally.o: $(BUILD)/core.o $(call objects,$(filter-out $(CORE_SRC),$(LIB_SRC))) $(ISAS:%=$(BUILD)/isa-%.o) \
                  $(BUILD)/page_files.o
	$(if $(strip $(LIB_SRC)),,$(error There are no library sources under src/))
	$(call say,JOIN,$@)$(CC) -r -nostdlib -o $@ $^

$(BUILD)/libtally.so.$(VERSION): $(BUILD)/tally.o
	$(call say,LINK,$@)$(CC) -shared -Wl,-soname,$(SONAME) $(LINKSAFE) $(call ORIGIN,) $(PLUGINS) -o $@ $< \
	    $(SANLINK) $(LDFLAGS) $(LINK_LIBS)

$(BUILD)/libtally.so: $(BUILD)/libtally.so.$(VERSION)
	@ln -sf $(<F) $(BUILD)/$(SONAME) && ln -sf $(SONAME) $@

$(BUILD)/libtally.a: $(BUILD)/tally.o
	$(call say,AR,$@)$(OBJCOPY) --localize-hidden $< $(BUILD)/libtally.o && rm -f $@ && $(AR) rcs $@ $(BUILD)/libtally.o

$(BUILD)/tally: $(call objects,$(CLI_SRC)) $(BUILD)/tally.o
	$(call say,LINK,$@)$(CC) $(LINKSAFE) $(call ORIGIN,) $(call ORIGIN,/../lib) $(PLUGINS) -o $@ $^ $(SANLINK) \
	    $(LDFLAGS) $(LINK_LIBS) $(WATCH_LIBS)

$(BUILD)/tests/test_%: $(BUILD)/obj/tests/test_%.c.o $(call objects,$(SUPPORT_SRC)) $(BUILD)/tally.o
	$(call say,LINK,$@)mkdir -p $(@D) && $(CC) $(call ORIGIN,/..) -o $@ $^ $(SANLINK) $(LDFLAGS) \
	    $(CMOCKA_LIBS) $(call rpaths,$(CMOCKA_LIBS)) $(LINK_LIBS)

$(BUILD)/bench/bench_%: $(BUILD)/obj/bench/bench_%.c.o $(BUILD)/tally.o
	$(call say,LINK,$@)mkdir -p $(@D) && $(CC) $(call ORIGIN,/..) -o $@ $^ $(SANLINK) $(LDFLAGS) $(LINK_LIBS)

# Inline functions of C++'s library are functions without optimisation, and visible unless the linker hides them.
$(BUILD)/libtally_cuda.so: $(call objects,$(CUDA_SRC))
	$(call say,LINK,$@)echo '{ global: tally_cuda_*; local: *; };' >$(BUILD)/cuda.map && \
	    $(CXX) -shared $(LINKSAFE) -Wl,--version-script=$(BUILD)/cuda.map -o $@ $^ $(CUDA_LIBS) \
	    $(CUDA_RPATHS)

# The same plugin without a GPU: its kernels as C++ (tests/cuda_on_cpu). Warnings are nvcc's business.
ON_CPU       := $(BUILD)/on-cpu
ON_CPU_TOOL  := tests/cuda_on_cpu
ON_CPU_FLAGS  = -std=c++17 -Og -w -Wno-psabi -fPIC -fvisibility=hidden -ffp-contract=off $(CUDA_INC) $(SANLINK) \
                $(if $(SANITIZE),-g1 -fno-sanitize-recover=all --param asan-stack=0)
ON_CPU_CUH   := $(addprefix $(ON_CPU)/,$(wildcard src/device/cuda/*/*.cuh))
ON_CPU_CU    := $(patsubst %.cu,$(ON_CPU)/%.o,$(filter %.cu,$(CUDA_SRC)))
ON_CPU_GPU   := $(patsubst %.cpp,$(ON_CPU)/%.o,$(wildcard $(ON_CPU_TOOL)/*.cpp))
$(ON_CPU)/%.cuh: %.cuh $(ON_CPU_TOOL)/convert $(ON_CPU_TOOL)/gpu.h
	@$(ON_CPU_TOOL)/convert $< $@
$(ON_CPU)/%.cpp: %.cu $(ON_CPU_TOOL)/convert $(ON_CPU_TOOL)/gpu.h
	@$(ON_CPU_TOOL)/convert $< $@
$(ON_CPU_CU): %.o: %.cpp $(ON_CPU_CUH) $(wildcard src/device/cuda/*/*.h)
	$(call say,CXX,$(<:$(ON_CPU)/%.cpp=%.cu))$(CXX) $(ON_CPU_FLAGS) -include $(ON_CPU_TOOL)/gpu.h -I$(ON_CPU)/src \
	    -Iinclude -Isrc -c -o $@ $<
$(ON_CPU_GPU): $(ON_CPU)/%.o: %.cpp $(ON_CPU_TOOL)/gpu.h
	$(call say,CXX,$<)mkdir -p $(@D) && $(CXX) $(ON_CPU_FLAGS) -O2 -Wall -Wextra -Isrc -c -o $@ $<
$(ON_CPU)/libtally_cuda.so: $(call objects,$(filter %.c,$(CUDA_SRC))) $(ON_CPU_CU) $(ON_CPU_GPU)
	$(call say,LINK,$@)echo '{ global: tally_cuda_*; local: *; };' >$(ON_CPU)/cuda.map && \
	    $(CXX) -shared $(LINKSAFE) -Wl,--version-script=$(ON_CPU)/cuda.map -o $@ $^ $(SANLINK) -ldl \
	    -pthread
# A program looks for its plugins beside itself first.
$(ON_CPU)/%: $(BUILD)/tests/%
	@mkdir -p $(@D) && ln -f $< $@
cuda-on-cpu: $(ON_CPU)/libtally_cuda.so $(ON_CPU)/test_cuda

# The packages that pkg-config knows them by: Open MPI's and MPICH's.
MPI_openmpi := ompi-c
MPI_mpich   := mpich
# MPICH's MPI_STATUSES_IGNORE is a pointer that gcc takes for an array without elements.
MPIS        := $(strip $(foreach m,openmpi mpich,$(if $(call has,$(MPI_$(m))),$(m))))
mpi: $(MPIS:%=$(BUILD)/libtally_%.so)
$(MPIS:%=$(BUILD)/libtally_%.so): $(BUILD)/libtally_%.so: \
  $(MPI_SRC) src/comm/comm.h src/tensor/device.h include/tally.h $(BUILD)/flags
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) -shared $(ALL_CFLAGS) -Wno-unknown-warning-option \
	    -Wno-stringop-overflow $(call cflags,$(MPI_$*)) $(LINKSAFE) -o $@ $< $(SANLINK) $(LDFLAGS) \
	    $(shell $(pkg) --libs $(MPI_$*))

# One C function per function of tally.h, for Python's stable interface: the same file serves every Python from 3.10 on.
PYTHON    ?= python3
PYTHON_INC = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')
python: lib $(BUILD)/python/_native.abi3.so
$(BUILD)/python/_native_all.c: python/tally/_generate.py python/tally/_header.py python/tally/_native.c include/tally.h
	$(call say,WRITE,$@)mkdir -p $(@D) && $(PYTHON) python/tally/_generate.py include/tally.h python/tally/_native.c >$@
$(BUILD)/python/_native.abi3.so: $(BUILD)/python/_native_all.c
	$(call say,CC,$@)$(CC) -shared -std=gnu17 $(filter-out -fopenmp,$(CODEGEN)) $(CFLAGS) -Wall -Wextra \
	    $(if $(call on,WERROR),-Werror) -Iinclude -isystem $(PYTHON_INC) -o $@ $< $(SANLINK) $(LDFLAGS) -ldl

# Builds in build/wheel, with the flags of a library that travels.
wheel:
	@$(PYTHON) tools/python_wheel.py $(BUILD)/dist
wheel-cuda:
	@$(PYTHON) tools/python_wheel.py --cuda $(BUILD)/dist

# --------------------------------------------------------------------------------------------------- the planner's page

# The same sources, compiled to WebAssembly: the program of wasm/planner.c with all of the library that a browser can
# have: no kernels, no runs in folders, no other processes, no patterns, no compression. The linker leaves out what the
# program does not use; where that refers to what is absent, wasm/absent.c stands in. jansson is compiled with it, and
# kept in .deps since its sources have to be fetched.
EMCC        ?= $(shell command -v emcc 2>/dev/null)
WASM        := $(BUILD)/wasm
WASM_ABSENT := src/comm/rendezvous.c src/comm/watch.c src/text/regex.c src/data/byte_stream.c
WASM_CLI    := $(addprefix src/cli/,cli.c cmd_devices.c cmd_fit.c cmd_napkin.c cmd_plan.c napkin_loss.c \
                 napkin_optimum.c napkin_run.c napkin_sizes.c near.c options.c plan_best.c plan_layouts.c \
                 plan_options.c plan_serve.c plan_sheet.c plan_sheet_cost.c plan_sheet_growth.c plan_sheet_run.c \
                 settings_flags.c sheet.c)
WASM_SRC    := $(filter-out $(WASM_ABSENT) $(CPU_SRC) src/train/% src/page/% src/einops/%,$(LIB_SRC)) \
               src/device/cpu/rules.c $(WASM_CLI) $(wildcard wasm/*.c)
WASM_JANSSON = .deps/jansson
# Compiled folder by folder: emcc takes longer to start than to compile most files.
WASM_FOLDERS := $(patsubst %/,%,$(sort $(dir $(WASM_SRC))))
WASM_HEADERS := $(wildcard include/*.h src/*/*.h src/*/*/*.h src/*/*/*/*.h wasm/include/*.h)
# -O1 makes the page larger and slower, and quicker to build.
WASM_OPT    ?= -O2
WASM_CFLAGS := $(STRICT) -ffp-contract=off -fno-math-errno $(WASM_OPT) -Iinclude -Isrc -Iwasm/include \
               -include wasm/include/system.h -isystem $(WASM_JANSSON)
# Each question gets an instance of its own: it starts small and grows. The page hands in files, and takes the output.
WASM_LINK   := $(WASM_OPT) -s MODULARIZE=1 -s EXPORT_NAME=tallyPlanner -s ENVIRONMENT=web,worker,node -s INVOKE_RUN=0 \
               -s INITIAL_MEMORY=4MB -s ALLOW_MEMORY_GROWTH=1 -s TOTAL_STACK=512KB -s FORCE_FILESYSTEM=1 \
               -s EXPORTED_RUNTIME_METHODS=FS,callMain

.PHONY: planner-page planner-wasm planner-refused
planner-page: $(if $(EMCC),$(BUILD)/planner.html,planner-refused)
planner-wasm: $(if $(EMCC),$(WASM)/planner.js,planner-refused)
planner-refused:
	@echo 'The planner page needs emscripten and node: apt install emscripten nodejs,' \
	    'or run scripts/install-deps --page.' >&2; exit 1

define wasm_rule
$(WASM)/obj/$(1).o: $(foreach f,$(WASM_SRC),$(if $(filter $(1)/,$(dir $(f))),$(f))) $(WASM_HEADERS) $(WASM)/flags \
  | $(WASM_JANSSON)/jansson.h
	$$(call say,EMCC,$(1))mkdir -p $$(@D) && $$(EMCC) $$(WASM_CFLAGS) -r -o $$@ $$(filter %.c,$$^)
endef
$(foreach folder,$(WASM_FOLDERS),$(eval $(call wasm_rule,$(folder))))
$(WASM_JANSSON)/jansson.h:
	$(call say,FETCH,$(@D))scripts/fetch-jansson $(@D)
$(WASM)/jansson.o: $(WASM_JANSSON)/jansson.h $(WASM)/flags
	$(call say,EMCC,$(@F))mkdir -p $(@D) && $(EMCC) $(WASM_OPT) -w -DHAVE_CONFIG_H -I$(WASM_JANSSON) -r -o $@ \
	    $(WASM_JANSSON)/*.c
# Debian keeps the modules that emcc needs where Debian's node looks for them, and no other node.
$(WASM)/planner.js: $(WASM_FOLDERS:%=$(WASM)/obj/%.o) $(WASM)/jansson.o
	$(call say,LINK,$@)NODE_PATH=$${NODE_PATH:+$$NODE_PATH:}/usr/share/nodejs $(EMCC) $(WASM_LINK) -o $@ $^
$(BUILD)/planner.html: $(WASM)/planner.js tools/planner_page $(addprefix wasm/,planner.html planner.css planner.js \
  ask.js worker.js) $(addprefix src/page/,style.css charts.js)
	$(call say,WRITE,$@)tools/planner_page $(WASM) $@
$(WASM)/flags: FLAGS = $(EMCC) $(WASM_CFLAGS)

# FLAGS_<source> holds options for one file alone.
$(BUILD)/obj/%.c.o: %.c $(BUILD)/flags
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) $(FLAGS_$<) -MMD -MP -c -o $@ $<

# Without optimisation, ptxas crashes on warpgroup products, unless nvcc is told to hurry (-Ofc max).
$(BUILD)/obj/src/device/cuda/ops/attention_hopper.cu.o \
$(BUILD)/obj/src/device/cuda/ops/attention_hopper_wide.cu.o \
$(BUILD)/obj/src/device/cuda/ops/grouped_hopper.cu.o \
$(BUILD)/obj/src/device/cuda/ops/head_hopper.cu.o \
$(BUILD)/obj/src/device/cuda/ops/mlp.cu.o: private override NVCCFLAGS := -O3 $(findstring -Ofc max,$(NVCCFLAGS))

$(BUILD)/obj/%.cu.o: %.cu $(BUILD)/flags-cuda
	$(call say,NVCC,$<)mkdir -p $(@D) && $(NVCC) $(NVCC_ALL) $(FLAGS_$<) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(call objects,$(filter %.c,$(CUDA_SRC))): EXTRA_CFLAGS = $(CUDA_INC)
$(call objects,$(SUPPORT_SRC) $(sort $(TESTS:%=tests/test_%.c) tests/test_sweep.c)): \
    EXTRA_CFLAGS = -Itests -Wno-frame-larger-than $(CMOCKA_CFLAGS)

# Objects are stale when the flags change, not only when a source does: the flags live in a file that is rewritten
# only when they differ.
quote = '$(subst ','\'',$(strip $(1)))'
$(BUILD)/flags: FLAGS = $(CC) $(ALL_CFLAGS)
$(BUILD)/flags-cuda: FLAGS = $(NVCC) $(NVCC_ALL)
$(BUILD)/flags $(BUILD)/flags-cuda $(WASM)/flags: FORCE
	@mkdir -p $(@D); echo $(call quote,$(FLAGS)) | cmp -s - $@ || echo $(call quote,$(FLAGS)) >$@
	$(if $(filter %-cuda,$@),$(CUDA_CHOSEN))
FORCE:
# Said and written down before the plugin is compiled.
define CUDA_CHOSEN
@[ -s $(BUILD)/libtally_cuda.so ] || echo '  CUDA     for compute capability $(CUDA_GENERATIONS)$(CUDA_WHY)'
@printf '%s\n' 'NVCC_KEPT := $(NVCC)' 'CUDA_ARCHS_KEPT := $(CUDA_GENERATIONS)' >$(BUILD)/cuda.mk
endef
CUDA_WHY = $(if $(filter native,$(CUDA_ARCHS)),$(if $(CUDA_FOUND), (this machine has it),$(comma) \
             since nvidia-smi shows no GPU; CUDA_ARCHS=90, for one, is much faster to build))

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# ---------------------------------------------------------------------------------------------------------------- tests

# A plugin that was built once is kept fresh: a stale one would be opened by the tests.
test: tests $(if $(NO_CUDA),,$(if $(wildcard $(BUILD)/libtally_cuda.so),cuda-found))
	@tools/run_tests $(BUILD) $(TEST_BINS)
# Sanitizers would report what MPI libraries do.
tests: $(TEST_BINS) $(if $(SANITIZE),,mpi)

# The leak check at the end of each program is slow on some machines (4 s on aarch64), so they run side by side.
asan:
	@TEST_JOBS=$$(nproc) $(MAKE) --no-print-directory BUILD=$(BUILD)/asan SANITIZE=address,undefined CUDA=0 test

# gcc's OpenMP runtime is not built for ThreadSanitizer, which therefore cannot see its barriers and would report every
# parallel loop as a race. What this target is after are our own threads (pool, ledger, loader, scopes), so OpenMP stays
# compiled in, as shipped, and is held to one thread per team; OMP_THREAD_LIMIT beats any num_threads() in the code.
tsan:
	@OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1 $(MAKE) --no-print-directory BUILD=$(BUILD)/tsan SANITIZE=thread CUDA=0 ISAS= \
	    TESTS="threads einops loader" test

# Coverage is counted in the whole library. Findings stay in the folder of the corpus, which is kept between runs.
# fuzz_files has several readers, each with its own corpus. Leaks are checked once, at the end of each program, since a
# check after every input would take seconds; ASAN_OPTIONS=detect_leaks=0 disables it.
FUZZ         ?= $(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/*.c)))
FUZZ_READERS ?= safetensors gguf tokens npy jsonl config settings kinds manifest tokenizer ranks tekken \
                vocab merges choices
FUZZ_SECONDS ?= 60
FUZZ_SEED    ?= 1
FUZZ_JOBS    ?= 1
fuzz:
	@command -v clang >/dev/null || { echo 'make fuzz needs clang' >&2; exit 1; }
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang SANITIZE=fuzzer-no-link,address,undefined CUDA=0 fuzz-run
$(BUILD)/tests/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.c.o $(BUILD)/tally.o
	$(call say,LINK,$@)mkdir -p $(@D) && $(CC) -o $@ $^ -fsanitize=fuzzer,address,undefined $(LDFLAGS) $(LINK_LIBS)
fuzz-run: $(FUZZ:%=$(BUILD)/tests/fuzz_%)
	@FUZZ_JOBS=$(FUZZ_JOBS) tests/fuzz/run $(BUILD) \
	    '$(if $(FUZZ_RUNS),-runs=$(FUZZ_RUNS),-max_total_time=$(FUZZ_SECONDS))' $(FUZZ_SEED) \
	    $(foreach f,$(FUZZ),$(if $(filter files,$f),$(FUZZ_READERS:%=files/%),$f))
$(call objects,$(wildcard tests/fuzz/*.c)): EXTRA_CFLAGS = -Itests -Wno-frame-larger-than

$(BUILD)/tests/test_train_ranks: | $(BUILD)/tests/test_sweep # which it starts
sweep: $(BUILD)/tests/test_sweep
	@$< $(or $(SWEEP),--runs 500)
soak: $(BUILD)/tally
	@$(PYTHON) tests/soak/run --tally $< $(SOAK)
soak-ranks: $(BUILD)/tests/test_train_ranks mpi
	@tests/soak/ranks --build $(BUILD) $(RANKS)
asan-ranks:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan SANITIZE=address,undefined CUDA=0 lib mpi
	@tests/soak/asan-ranks $(BUILD)/asan/tally
soak-kills: $(BUILD)/tally mpi
	@$(PYTHON) tests/soak/rank-kills --tally $< --self-test
	@$(PYTHON) tests/soak/rank-kills --tally $< $(KILLS)
soak-machines: $(BUILD)/tally mpi
	@$(PYTHON) tests/soak/machines --tally $<
fuzz-programs: $(BUILD)/tally
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan SANITIZE=address,undefined CUDA=0 $(BUILD)/asan/tally
	@$(PYTHON) tests/fuzz/command_lines.py --tally $(BUILD)/asan/tally --plain $< $(FUZZ_PROGRAMS); command_lines=$$?; \
	 $(PYTHON) tests/fuzz/mutate.py --tally $(BUILD)/asan/tally --plain $< $(FUZZ_PROGRAMS) && exit $$command_lines

bench: $(BENCH_BINS) $(if $(filter ops,$(BENCH)),lib)
	@for b in $(BENCH_BINS); do echo "== $${b##*/}"; $$b || exit 1; done
	$(if $(filter ops,$(BENCH)),@TALLY_LIB=$(abspath $(BUILD)/libtally.so) $(PYTHON) bench/bench_ops.py $(BENCH_ARGS))

# -------------------------------------------------------------------------------------------------------------- install

define PC
prefix=$(PREFIX)
includedir=$(INCLUDEDIR)
libdir=$(LIBDIR)

Name: tally
Description: Language-model training whose price and receipt tally
Version: $(VERSION)
Cflags: -I$${includedir}
Libs: -L$${libdir} -ltally
Libs.private: $(strip $(LINK_LIBS))
endef

empty :=
blank := $(empty) $(empty)
# CMake's find_package(tally): what tally.pc says, as the targets tally::tally and tally::static.
define CMAKE_TARGETS
if(NOT TARGET tally::tally)
  add_library(tally::tally SHARED IMPORTED)
  set_target_properties(tally::tally PROPERTIES
    IMPORTED_LOCATION "$(LIBDIR)/libtally.so.$(VERSION)"
    IMPORTED_SONAME "$(SONAME)"
    INTERFACE_INCLUDE_DIRECTORIES "$(INCLUDEDIR)")
  add_library(tally::static STATIC IMPORTED)
  set_target_properties(tally::static PROPERTIES
    IMPORTED_LOCATION "$(LIBDIR)/libtally.a"
    INTERFACE_INCLUDE_DIRECTORIES "$(INCLUDEDIR)"
    INTERFACE_LINK_LIBRARIES "$(subst $(blank),;,$(strip $(LINK_LIBS)))")
endif()
endef
# A version serves requests for itself and for older ones with the same soname.
define CMAKE_VERSION
set(PACKAGE_VERSION "$(VERSION)")
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
if(PACKAGE_FIND_VERSION_MAJOR STREQUAL "$(firstword $(subst ., ,$(VERSION)))" AND
   NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
endef

# Rewritten every time: they contain PREFIX, which may differ between `make` and `make install`.
$(BUILD)/tally.pc: FORCE
	$(shell mkdir -p $(@D))$(file >$@,$(PC))@:
$(BUILD)/tally-config.cmake: FORCE
	$(shell mkdir -p $(@D))$(file >$@,$(CMAKE_TARGETS))$(file >$(@:.cmake=-version.cmake),$(CMAKE_VERSION))@:

CMAKEDIR  = $(LIBDIR)/cmake/tally
DOCS     := README.md CHANGELOG.md LICENSE $(wildcard docs/*.md docs/pictures/*)
INSTALLED = $(BINDIR)/tally $(INCLUDEDIR)/tally.h $(LIBDIR)/libtally.so $(LIBDIR)/$(SONAME) \
            $(LIBDIR)/libtally.so.$(VERSION) $(LIBDIR)/libtally.a $(PLUGINDIR)/libtally_cuda.so \
            $(PLUGINDIR)/libtally_openmpi.so $(PLUGINDIR)/libtally_mpich.so $(LIBDIR)/pkgconfig/tally.pc \
            $(CMAKEDIR)/tally-config.cmake $(CMAKEDIR)/tally-config-version.cmake \
            $(DOCDIR)/planner.html $(DOCS:%=$(DOCDIR)/%) $(BASHDIR)/tally $(ZSHDIR)/_tally $(FISHDIR)/tally.fish

# Manual pages and the completion of shells: what the program says of itself. The pages of commands that are no more do
# not stay.
$(BUILD)/man/tally.1: $(BUILD)/tally
	$(call say,WRITE,$(@D))rm -rf $(@D) && mkdir -p $(@D) && $< --man --write $(@D) && \
	    for shell in bash zsh fish; do $< completion $$shell >$(BUILD)/man/completion.$$shell || exit 1; done

install: all $(BUILD)/tally-config.cmake $(if $(CLI_SRC),$(BUILD)/man/tally.1)
	$(INSTALL) -d $(addprefix $(DESTDIR),$(BINDIR) $(INCLUDEDIR) $(LIBDIR)/pkgconfig $(PLUGINDIR) $(CMAKEDIR) \
	    $(DOCDIR)/docs/pictures)
	$(INSTALL) -m 644 include/tally.h $(DESTDIR)$(INCLUDEDIR)/
	$(INSTALL) -m 755 $(BUILD)/libtally.so.$(VERSION) $(DESTDIR)$(LIBDIR)/
	ln -sf libtally.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libtally.so
	$(INSTALL) -m 644 $(BUILD)/libtally.a $(DESTDIR)$(LIBDIR)/
	$(INSTALL) -m 644 $(BUILD)/tally.pc $(DESTDIR)$(LIBDIR)/pkgconfig/
	$(INSTALL) -m 644 $(BUILD)/tally-config.cmake $(BUILD)/tally-config-version.cmake $(DESTDIR)$(CMAKEDIR)/
	for file in $(DOCS); do $(INSTALL) -m 644 $$file $(DESTDIR)$(DOCDIR)/$$file || exit 1; done
	$(if $(CLI_SRC),$(INSTALL) -m 755 $(BUILD)/tally $(DESTDIR)$(BINDIR)/)
	$(if $(CLI_SRC),$(INSTALL) -d $(DESTDIR)$(MANDIR)/man1 && $(INSTALL) -m 644 $(BUILD)/man/*.1 $(DESTDIR)$(MANDIR)/man1/)
	$(if $(CLI_SRC),$(INSTALL) -D -m 644 $(BUILD)/man/completion.bash $(DESTDIR)$(BASHDIR)/tally)
	$(if $(CLI_SRC),$(INSTALL) -D -m 644 $(BUILD)/man/completion.zsh $(DESTDIR)$(ZSHDIR)/_tally)
	$(if $(CLI_SRC),$(INSTALL) -D -m 644 $(BUILD)/man/completion.fish $(DESTDIR)$(FISHDIR)/tally.fish)
	$(if $(NO_CUDA),,$(INSTALL) -m 755 $(BUILD)/libtally_cuda.so $(DESTDIR)$(PLUGINDIR)/)
	$(if $(MPIS),$(INSTALL) -m 755 $(MPIS:%=$(BUILD)/libtally_%.so) $(DESTDIR)$(PLUGINDIR)/)
	$(if $(wildcard $(BUILD)/planner.html),$(INSTALL) -D -m 644 $(BUILD)/planner.html $(DESTDIR)$(DOCDIR)/planner.html)
	@[ -n '$(DESTDIR)' ] || [ "$$(id -u)" != 0 ] || ldconfig 2>/dev/null || true

uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED)) $(DESTDIR)$(MANDIR)/man1/tally.1 $(DESTDIR)$(MANDIR)/man1/tally-*.1

# Without a build: from the text of the sources.
docs:
	@python3 tools/elementwise_rows --write

format:
	@python3 tools/check_format --write

clean:
	@[ ! -d $(BUILD) ] || find $(BUILD) -mindepth 1 -maxdepth 1 ! -name venv -exec rm -rf {} +

help:
	@sed -n 's/^#: \{0,1\}//p' $(firstword $(MAKEFILE_LIST))
