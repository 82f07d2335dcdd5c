/* environment.c: every variable of the environment that Tally reads. `tally help environment`, the manual page and
 * docs/program.md print this table; tools/check_environment finds a variable that is read and is not in it. */
#include <stdio.h>

#include "cli/help.h"

const struct environment_row environment_rows[] = {
    {"OMP_NUM_THREADS", "N", "CPU threads; --threads sets them for a command. Default: all cores"},
    {"TALLY_ISA", "NAME",
     "the instruction set of the CPU kernels, of those that `make` compiled: baseline, avx2, "
     "avx512, avx512bf16, amx, fp16, bf16. Default: the best that the processor has"},
    {"NO_COLOR", "1", "any value: no colours, also on a terminal"},
    {"TERM", "NAME", "the terminal; dumb has no colours"},
    {"TMPDIR", "FOLDER", "where the built-in stories and other temporary files go. Default: /tmp"},
    {"XDG_CONFIG_HOME", "FOLDER",
     "FOLDER/tally holds the machine's profile (`tally calibrate`) and your own chips, "
     "hardware.json. Default: ~/.config"},
    {"HOME", "FOLDER", "where .config is, if XDG_CONFIG_HOME is not set"},
    {"TALLY_CUDA_VERBOSE", "1", "cuda: print on stderr which algorithms cuDNN takes for attention"},
    {"TALLY_NCCL", "0", "do not use NCCL between GPUs; messages go through MPI"},
    {"NCCL_HOSTID", "TEXT", "NCCL's own: processes with another one are on another machine"},
    {"NCCL_MULTI_RANK_GPU_ENABLE", "1", "NCCL's own: several processes may share a GPU"},
    {"TALLY_MPI", "NAME",
     "the plugin for processes: openmpi or mpich. Default: that of the launcher that started "
     "them"},
    {"TALLY_TIMEOUT", "SECONDS",
     "end a launch in which a process has waited this long for another. Default: found "
     "from the steps before"},
    {"TALLY_WATCH", "SECONDS",
     "how long a process of a launch may be silent before all end; 0: do not watch. Default: 15"},
    {"TALLY_LAUNCH", "NAME", "set by `tally launch` for its processes"},
    {"RANK", "N",
     "set by torchrun: the number of this process; with WORLD_SIZE and MASTER_ADDR, processes find each "
     "other without mpirun"},
    {"WORLD_SIZE", "N", "set by torchrun: how many processes there are"},
    {"LOCAL_WORLD_SIZE", "N", "set by torchrun: how many of them are on this machine"},
    {"MASTER_ADDR", "HOST", "set by torchrun: where the first process listens"},
    {"MASTER_PORT", "N", "set by torchrun: on which port"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True",
     "set by torchrun: it listens on that port itself, so Tally takes the next"},
    {"OMPI_COMM_WORLD_SIZE", "N", "set by Open MPI's mpirun, which shows that it started the process"},
    {"OMPI_COMM_WORLD_RANK", "N", "set by Open MPI's mpirun: the number of this process"},
    {"PMIX_RANK", "N", "set by srun --mpi=pmix: the number of this process"},
    {"PMI_SIZE", "N", "set by MPICH's mpiexec, which shows that it started the process"},
    {"PMI_RANK", "N", "set by MPICH's mpiexec: the number of this process"},
    {"MPI_LOCALNRANKS", "N", "set by MPICH's and Intel's mpiexec: how many processes are on this machine"},
    {"TALLY_LIB", "FILE", "Python: the library to load, instead of the package's own"},
    {"TALLY_BINDING", "ctypes", "Python: call the library through ctypes, not through the compiled binding"},
    {"TALLY_TORCH", "NAME", "scripts/install-deps: the PyTorch to install, \"torch==2.9.1\"; none: no PyTorch"},
    {"TALLY_JANSSON", "FILE", "scripts/fetch-jansson: the archive of jansson's sources, instead of fetching it"},
    {0}};

void environment_print(void) {
    printf("Variables of the environment that Tally reads:\n\n");
    for (const struct environment_row *row = environment_rows; row->name; row++) {
        char left[64];
        snprintf(left, sizeof left, "%s=%s", row->name, row->value);
        printf("  %-34s %s\n", left, row->help);
    }
}
