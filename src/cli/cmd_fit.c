#include "cli/cli.h"
#include "cli/plan_options.h"
const char help_fit[] = "";
int cmd_fit(int argc, char **argv) { (void)argc, (void)argv; return 0; }
