/* cmd_ops.c: tally ops */
#include "cli/cli.h"
#include "ops/ops.h"

const char help_ops[] = "usage: tally ops\n\n"
                        "Lists every op: its kind (VIEW costs nothing, KERNEL runs on every device, DYNAMIC depends on "
                        "data and is refused\n"
                        "on meta, TRANSFER moves between devices), whether it has a gradient, what that gradient "
                        "saves, and its workspace.\n";

static void saves_print(uint32_t saves, const char *prefix) {
    const char *separator = prefix;
    for (int i = 0; i < 32; i++) {
        if (!(saves >> i & 1)) continue;
        printf("%s%s %d", separator, i < 16 ? "input" : "output", i < 16 ? i : i - 16);
        separator = ", ";
    }
}

int cmd_ops(int argc, char **argv) {
    static const char *const kind[] = {"VIEW", "KERNEL", "DYNAMIC", "TRANSFER"};
    if (argc > 1) {
        fprintf(stderr, "tally ops: it takes no \"%s\"; see `tally ops --help`\n", argv[1]);
        return EXIT_USAGE;
    }
    printf("%-20s %-9s %-9s %-9s %s\n", "op", "kind", "gradient", "scratch", "saved for the gradient");
    for (int i = 0; i < OP_COUNT; i++) {
        const tl_op *op = op_table[i];
        uint32_t saves = op->saves_any | op->saves[0] | op->saves[1] | op->saves[2] | op->saves[3];
        const char *gradient = !op->backward ? "none" : op->backward == gradient_missing ? "no rule" : "yes";
        printf("%-20s %-9s %-9s %-9s", op->name, kind[op->kind], gradient, op->workspace ? "yes" : "-");
        saves_print(saves, " ");
        printf("\n");
    }
    return 0;
}
