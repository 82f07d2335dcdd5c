/* cmd_ops.c: tally ops */
#include <jansson.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "ops/ops.h"

const char help_ops[] =
    "usage: tally ops [NAME] [--json]\n"
    "\n"
    "Lists every op, or one: a row of facts, then its shapes | dtypes | FLOPs.\n"
    "\n"
    "  kind      VIEW costs nothing, KERNEL runs on every device, DYNAMIC depends on data and cannot run on meta,\n"
    "            TRANSFER moves data between devices\n"
    "  gradient  yes; none: no gradient flows through it; no rule: asking for a gradient is an error\n"
    "  scratch   whether it may need a workspace\n"
    "  saved     the inputs and outputs that its gradient reads; they are kept until then\n"
    "  FLOPs     n is the number of elements of the result; other letters are those of the shapes\n"
    "\n"
    "examples:\n"
    "  tally ops\n"
    "  tally ops matmul\n"
    "  tally ops --json | jq '.[] | select(.scratch) | .name'\n";

enum { COLUMNS = 120, INDENT = 4 };

static const char *kind_name(const tl_op *op) {
    static const char *const name[] = {"VIEW", "KERNEL", "DYNAMIC", "TRANSFER"};
    return name[op->kind];
}

static const char *gradient_name(const tl_op *op) {
    return !op->backward ? "none" : op->backward == gradient_missing ? "no rule" : "yes";
}

/* Inputs, then outputs, are numbered through. */
enum { PLACES = TL_MAX_INPUTS + TL_MAX_OUTPUTS };

static bool is_saved(const tl_op *op, int place) {
    saved_set all = op->saves_any;
    for (int i = 0; i < TL_MAX_INPUTS; i++) all |= op->saves[i];
    return place < TL_MAX_INPUTS ? saves_input(all, place) : saves_output(all, place - TL_MAX_INPUTS);
}
static const char *saved_name(int place, char buffer[24]) {
    bool is_input = place < TL_MAX_INPUTS;
    snprintf(buffer, 24, "%s %d", is_input ? "input" : "output", is_input ? place : place - TL_MAX_INPUTS);
    return buffer;
}

/* ---- Text ---- */

/* "input 1, output 0"; three and more in a row are "input 1 to input 14". */
static void saved_print(const tl_op *op) {
    char name[24];
    const char *separator = "";
    for (int i = 0; i < PLACES; i++) {
        if (!is_saved(op, i)) continue;
        printf("%s%s", separator, saved_name(i, name));
        separator = ", ";
        int last = i, end = i < TL_MAX_INPUTS ? TL_MAX_INPUTS : PLACES;
        while (last + 1 < end && is_saved(op, last + 1)) last++;
        if (last < i + 2) continue;
        printf(" to %s", saved_name(last, name));
        i = last;
    }
    printf(*separator ? "\n" : "-\n");
}

/* As many on a line as fit. */
static void words_print(const tl_op *op) {
    const char *const word[] = {op->shapes, op->dtypes, op->flops}, *const label[] = {"", "", "FLOPs "};
    int column = 0;
    for (int i = 0; i < 3; i++) {
        int length = (int)(strlen(label[i]) + strlen(word[i]));
        bool fits = column && column + 3 + length <= COLUMNS;
        column = (fits ? column + 3 : INDENT) + length;
        if (fits) printf(" | ");
        else printf("%s%*s", i ? "\n" : "", INDENT, "");
        printf("%s%s", label[i], word[i]);
    }
    printf("\n");
}

static int table_print(void) {
    printf("%-20s %-9s %-9s %-9s %s\n", "op", "kind", "gradient", "scratch", "saved for the gradient");
    for (int i = 0; i < OP_COUNT; i++) {
        const tl_op *op = op_table[i];
        printf("%-20s %-9s %-9s %-9s ", op->name, kind_name(op), gradient_name(op), op->workspace ? "yes" : "-");
        saved_print(op);
        words_print(op);
    }
    return 0;
}

static int op_print(const tl_op *op) {
    printf("%s\n  kind      %s\n  shapes    %s\n  dtypes    %s\n  FLOPs     %s\n", op->name, kind_name(op), op->shapes,
           op->dtypes, op->flops);
    printf("  gradient  %s\n  scratch   %s\n  saved     ", gradient_name(op), op->workspace ? "yes" : "-");
    saved_print(op);
    return 0;
}

/* ---- JSON ---- */

static json_t *op_json(const tl_op *op) {
    char name[24];
    json_t *list = json_array();
    for (int i = 0; i < PLACES; i++)
        if (is_saved(op, i)) json_array_append_new(list, json_string(saved_name(i, name)));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:b}", "name", op->name, "kind", kind_name(op), "shapes",
                     op->shapes, "dtypes", op->dtypes, "flops", op->flops, "gradient", gradient_name(op), "saved", list,
                     "scratch", (int)(op->workspace != NULL));
}

/* `only`: the one op, or NULL for all. */
static json_t *table_json(const tl_op *only) {
    json_t *all = json_array();
    for (int i = 0; i < OP_COUNT; i++)
        if (!only || only == op_table[i]) json_array_append_new(all, op_json(op_table[i]));
    return all;
}

static const tl_op *op_find(const char *name) {
    const char *names[OP_COUNT];
    for (int i = 0; i < OP_COUNT; i++) {
        names[i] = op_table[i]->name;
        if (!strcmp(name, names[i])) return op_table[i];
    }
    char meant[TEXT_MEANT];
    fprintf(stderr, "tally ops: there is no op \"%s\"%s (`tally ops` lists them)\n", name,
            text_meant(meant, text_nearest(name, names, OP_COUNT)));
    return NULL;
}

int cmd_ops(int argc, char **argv) {
    const char *name = NULL;
    bool is_json = false;
    const struct option table[] = {{"--json", OPTION_FLAG, &is_json, 0, 0, false}, {0}};
    int code = options_read("ops", table, argc, argv, &name, 1);
    if (code) return code;
    const tl_op *op = name ? op_find(name) : NULL;
    if (name && !op) return EXIT_INPUT;
    return is_json ? cli_json(table_json(op)) : op ? op_print(op) : table_print();
}
