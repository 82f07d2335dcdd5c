#include "support/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More processes than cores, as any user. */
static const struct {
    const char *plugin, *command;
} launchers[] = {
    [OPEN_MPI] = {"openmpi", "mpirun.openmpi --oversubscribe --bind-to none"}, [MPICH] = {"mpich", "mpirun.mpich"}};

bool ranks_can_start(enum launcher launcher, const char *program) {
    char plugin[4200];
    snprintf(plugin, sizeof plugin, "%.*s/../libtally_%s.so", (int)(strrchr(program, '/') - program), program,
             launchers[launcher].plugin);
    return access(plugin, R_OK) == 0 && ranks_run(launcher, 2, "true >/dev/null 2>&1") == 0;
}

const char *ranks_start(enum launcher launcher, int n, int seconds) {
    static char start[200];
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    snprintf(start, sizeof start, "OMP_NUM_THREADS=1 timeout -s KILL %d %s -n %d", seconds, launchers[launcher].command,
             n);
    return start;
}

int ranks_run(enum launcher launcher, int n, const char *format, ...) {
    char what[4400], command[4600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(command, sizeof command, "%s %s", ranks_start(launcher, n, RANKS_SECONDS), what);
    return system(command);
}
