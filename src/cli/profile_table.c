#include "cli/profile_table.h"

#include <stdio.h>

#include "plan/predict.h"
#include "train/origin.h"

void profile_floors_find(struct profile *p, const char *device) {
    tl_device *found = p->n_steps ? tl_device_find(device) : NULL;
    struct machine machine = {0};
    struct predict_machine m;
    if (found && predict_machine_find(&m, &machine, device, origin_here(found).chip)) {
        for (size_t i = 0; i < p->rows.n; i++) {
            struct profile_row *row = &p->rows.rows[i];
            profile_floor_add(p, row, predict_floor(&m, row->dtype, row->flops, row->bytes));
        }
        p->floors = predict_source(&m);
    }
    machine_free(&machine);
}

static void profile_table(const struct profile *p, const struct profile_list *list, const char *title) {
    const double n = (double)p->n_steps;
    printf("\n  %-44s %-9s %10s %10s %7s %9s %8s", title, "", "calls/step", "ms/step", "share", "GFLOP/s", "GB/s");
    printf("%s\n", p->floors ? "     floor" : "");
    for (size_t i = 0; i < list->n; i++) {
        const struct profile_row *row = &list->rows[i];
        printf("  %-44s %-9s %10.1f %10.3f %6.1f%% %9.1f %8.1f", *row->name ? row->name : "(outside modules)",
               row->phase, (double)row->calls / n, 1e3 * row->time_s / n, 100 * row->time_s / p->step_s,
               profile_rate(row->flops, row->time_s), profile_rate(row->bytes, row->time_s));
        if (p->floors) printf(" %9.3f", 1e3 * row->floor_s / n);
        printf("\n");
    }
    const double rest = p->step_s - profile_kernel_s(p);
    printf("  %-44s %-9s %10s %10.3f %6.1f%%\n", "outside kernels", "", "", 1e3 * rest / n, 100 * rest / p->step_s);
    if (p->floors)
        printf("  %-44s %-9s %10s %10.3f %6.1f%% %9s %8s %9.3f\n", "all", "", "", 1e3 * p->step_s / n, 100.0, "", "",
               1e3 * profile_floor_s(p) / n);
}

void profile_print(const struct profile *p, const char *device) {
    if (!p->n_steps) return;
    profile_table(p, &p->ops, "time by op");
    profile_table(p, &p->modules, "time by module");
    if (p->floors) printf("\n  floor, in ms: the larger of FLOPs / peak and bytes / bandwidth; peaks: %s\n", p->floors);
    else
        printf("\n  no floors, since the peaks of this machine are not known: `tally calibrate --device %s` measures "
               "them\n",
               device);
}
