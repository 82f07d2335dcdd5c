/* main.c: the program. One table of commands; each is a cmd_*.c. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/near.h"
#include "cli/output.h"
#include "tensor/device.h"

const struct command commands[] = {
    {"train", "train a language model: price, run, checkpoints, receipt", help_train, cmd_train},
    {"launch", "start a command as several processes on this machine", help_launch, cmd_launch},
    {"plan", "what a training run needs: memory, FLOPs, time, cost, limits of growth", help_plan, cmd_plan},
    {"fit", "the largest batch, context, depth, width or model that fits a device or a budget", help_fit, cmd_fit},
    {"sweep", "train a ladder of small models, and predict the loss of a larger one", help_sweep, cmd_sweep},
    {"generate", "continue a text with a trained model", help_generate, cmd_generate},
    {"eval", "the loss of a trained model on a text: nats, perplexity, bits per byte", help_eval, cmd_eval},
    {"runs", "list training runs: state, steps, loss, speed", help_runs, cmd_runs},
    {"compare", "compare runs: settings that differ, losses, speed", help_compare, cmd_compare},
    {"diff", "compare a price with a receipt, to the last byte and FLOP", help_diff, cmd_diff},
    {"report", "draw runs as one HTML file: curves, memory, time, samples", help_report, cmd_report},
    {"watch", "the same as a live page on this machine", help_watch, cmd_watch},
    {"ops", "list every op with its kind, cost rule and saved tensors", help_ops, cmd_ops},
    {"napkin", "closed forms: time, memory, FLOPs, utilisation, scaling laws", help_napkin, cmd_napkin},
    {"roofline", "the ops of a step under the roofline of this machine or of any chip", help_roofline, cmd_roofline},
    {"calibrate", "measure this machine: peaks, memory, every op of a training step", help_calibrate, cmd_calibrate},
    {"devices", "known chips: peaks, memory and links, with sources", help_devices, cmd_devices},
    {"dtypes", "element types: range, precision, names in other libraries", help_dtypes, cmd_dtypes},
    {"export", "write a model as a GGUF file, for llama.cpp", help_export, cmd_export},
    {"inspect", "list the tensors and metadata of a safetensors file", help_inspect, cmd_inspect},
    {"tokenizer", "learn a vocabulary from texts", help_tokenizer, cmd_tokenizer},
    {"tokenize", "turn texts and JSONL, also compressed, into a token file", help_tokenize, cmd_tokenize},
    {"data", "make, convert, check and show token files", help_data, cmd_data},
    {"completion", "print a script that completes tally's command line: bash, zsh, fish", help_completion,
     cmd_completion},
    {0}};
#define N_COMMANDS ((int)(sizeof commands / sizeof *commands) - 1)

const struct exit_code exit_codes[] = {{0, "success"},
                                       {EXIT_USAGE, "wrong command line"},
                                       {EXIT_INPUT, "invalid value, setting or file content; price and receipt differ"},
                                       {EXIT_IO, "a file or a thread failed"},
                                       {EXIT_MEMORY, "out of memory"},
                                       {EXIT_NUMERIC, "train: loss or gradient not finite"},
                                       {EXIT_NO_FIT, "fit: nothing fits"},
                                       {EXIT_OTHERS, "another process of this launch failed"},
                                       {EXIT_AGAIN, "train: saved; the same command resumes"},
                                       {EXIT_STOPPED, "stopped by Ctrl-C (tokenize: saved)"},
                                       {0, NULL}};

/* As many on a line as there is room for. */
static void exit_codes_print(FILE *to) {
    int used = 0;
    fprintf(to, "\nexit codes:");
    for (int i = 0; exit_codes[i].text; i++) {
        int n = 6 + (int)strlen(exit_codes[i].text);
        bool is_new = !i || used + n > 80;
        fprintf(to, "%s%d %s", is_new ? "\n  " : "    ", exit_codes[i].code, exit_codes[i].text);
        used = is_new ? n : used + n;
    }
    fputc('\n', to);
}

static void usage(FILE *to) {
    fprintf(to, "tally %s: train language models and know the cost beforehand\n\nusage: tally COMMAND [options]\n\n",
            tl_version());
    for (int i = 0; i < N_COMMANDS; i++) fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n`tally COMMAND --help` explains a command and shows examples, `tally help\n"
                "environment` the variables of the environment. `tally --version` prints the\n"
                "version, and `tally --man COMMAND` is a manual page.\n");
    exit_codes_print(to);
}

static bool is_help_word(const char *word) {
    return !strcmp(word, "--help") || !strcmp(word, "help") || !strcmp(word, "-h");
}

/* The version on the first line, for programs; then what a report of a problem should have. */
static int version_print(void) {
    const tl_device *cpu = tl_device_find("cpu");
    int n = printf("tally %s\n", tl_version());
#if defined __clang__
    const char *compiler = "clang " __clang_version__;
#else
    const char *compiler = "gcc " __VERSION__;
#endif
#if defined TALLY_BLAS_BLIS
    const char *blas = "BLIS";
#else
    const char *blas = "OpenBLAS";
#endif
    if (n > 0) n = printf("  compiler     %s\n  matrices     %s\n", compiler, blas);
    if (n > 0)
        n = printf("  processor    %s, %d threads\n", cpu && cpu->isa ? cpu->isa : "baseline", process_threads());
    bool has_cuda = tl_device_find("cuda") != NULL;
    if (n > 0) n = printf("  CUDA         %s\n", has_cuda ? "yes" : tl_error_message());
    tl_error_clear();
    return n < 0 ? EXIT_IO : 0;
}

/* --man, --man COMMAND, --man --write FOLDER */
static int manual_run(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[2], "--write")) return manual_write(argv[3]);
    for (const struct command *c = commands; argc == 3 && c->name; c++)
        if (!strcmp(argv[2], c->name)) return manual_print(c), 0;
    if (argc == 2) return manual_print(NULL), 0;
    fprintf(stderr, "tally: --man takes a command, or --write FOLDER (`tally --man train | man -l -` shows a page)\n");
    return EXIT_USAGE;
}

static int command_run(int argc, char **argv) {
    bool is_help = is_help_word(argv[1]);
    if (is_help && argc == 2) return usage(stdout), 0;
    if (!strcmp(argv[1], "--version")) return version_print();
    if (!strcmp(argv[1], "--man")) return manual_run(argc, argv);
    const char *names[N_COMMANDS], *name = argv[1 + is_help]; /* help train, --help train */
    if (is_help && !strcmp(name, "environment")) return environment_print(), 0;
    for (int i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, commands[i].name)) continue;
        bool wants_help = is_help || (argc == 3 && !strcmp(argv[2], "help"));
        for (int k = 2; k < argc && strcmp(argv[k], "--"); k++) /* after it, words are another program's */
            wants_help = wants_help || !strcmp(argv[k], "--help") || !strcmp(argv[k], "-h");
        if (wants_help) {
            fputs(commands[i].help, stdout);
            return exit_codes_print(stdout), 0;
        }
        return commands[i].run(argc - 1, argv + 1);
    }
    const char *near = near_command(name);
    char meant[TEXT_MEANT], shown[64];
    if (near) snprintf(meant, sizeof meant, ", did you mean `tally %s`?", near);
    else text_meant(meant, text_nearest(name, names, N_COMMANDS));
    fprintf(stderr, "tally: there is no command \"%s\"%s (`tally --help` lists them)\n",
            text_show(shown, sizeof shown, name), meant);
    return EXIT_USAGE;
}

/* If a standard descriptor is closed, the next opened file would get its number, and output would end up in that
 * file. Replace it by one on which reads and writes fail, so that lost output is still an error. */
static bool descriptors_fill(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) return false;
    return true;
}

int main(int argc, char **argv) {
    if (!descriptors_fill()) return EXIT_IO;
    signal(SIGXFSZ, SIG_IGN); /* a write beyond `ulimit -f` fails with a reason, as on a full disk */
    tl_set_error_policy(TL_RETURN);
    if (!output_begin()) return EXIT_MEMORY;
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    int result = command_run(argc, argv);
    bool is_written = output_end();
    if (is_written || (result && result != EXIT_IO)) return result;
    fprintf(stderr, "tally: standard output: %s\n", errno ? strerror(errno) : "cannot be written");
    return EXIT_IO;
}
