/* cmd_completion.c: tally completion: scripts that complete the command line in bash, zsh and fish, made of what
 * `--help` prints and of the tables of settings, models and chips. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/help.h"
#include "cli/options.h"
#include "plan/hardware.h"
#include "step/settings.h"

const char help_completion[] =
    "usage: tally completion bash|zsh|fish\n"
    "\n"
    "Prints a script that completes commands, options and their values in a shell. `make install` installs all\n"
    "three where the shells find them; by hand:\n"
    "\n"
    "examples:\n"
    "  source <(tally completion bash)                                    now; in ~/.bashrc for good\n"
    "  tally completion zsh > ~/.zsh/_tally                               a folder of zsh's fpath\n"
    "  tally completion fish > ~/.config/fish/completions/tally.fish\n";

/* ---- What there is to choose ---- */

typedef void each_fn(const char *value, int n, void *context);

/* Calls `each` for every value that an option may have, if these are known. */
static bool values_each(const struct command *command, const struct help_option *o, each_fn *each, void *context) {
    const struct hardware *h;
    const char *name;
    bool has_model =
        help_has_settings(command) || !strcmp(command->name, "roofline") || !strcmp(command->name, "napkin");
    if (!strcmp(o->name, "--model") && has_model) {
        for (int i = 0; (name = tl_model_preset_name(i)); i++) each(name, (int)strlen(name), context);
        return true;
    }
    if (!strcmp(o->name, "--device")) {
        each("cpu", 3, context);
        each("cuda", 4, context);
        bool is_any =
            !strcmp(command->name, "plan") || !strcmp(command->name, "fit") || !strcmp(command->name, "napkin");
        for (int i = 0; is_any && (h = hardware_at(i)); i++) each(h->name, (int)strlen(h->name), context);
        return true;
    }
    const char *at = o->values.at, *end = at + o->values.n, *choice;
    for (size_t n; text_choice(&at, end, &choice, &n);) each(choice, (int)n, context);
    return o->values.n > 0;
}

static void line_each(const char *value, int n, void *context) {
    (void)context;
    printf("%.*s\n", n, value);
}

/* A description is the first clause of what the help says. */
static int clause(struct help_words w) {
    int n = 0;
    while (n < w.n && n < 60 && !strchr(";:[", w.at[n]) && strncmp(w.at + n, "  ", 2) && strncmp(w.at + n, ". ", 2))
        n++;
    while (n == 60 && n < w.n && n > 30 && w.at[n] != ' ') n--;
    return n;
}

/* A text in single quotes: ' ends them, and begins them again after a quote of its own. zsh reads ":" as the end of a
 * name, so that one inside it has a backslash. */
static void quoted(const char *text, int n, bool has_colons) {
    for (int i = 0; i < n; i++) printf("%s%s", text[i] == ':' && has_colons ? "\\" : "", text_quoted(text[i]).at);
}

/* ---- bash ---- */

static void bash_command(const struct command *c) {
    static struct help_option list[HELP_OPTIONS];
    char words[HELP_WORDS][24];
    int n = help_options(c, list);
    help_words(c, words);
    printf("    %s)\n        options='", c->name);
    for (int i = 0; i < n; i++) printf("%s%s", i ? " " : "", list[i].name);
    printf("'\n        words='");
    for (int i = 0; words[i][0]; i++) printf("%s%s", i ? " " : "", words[i]);
    printf("'\n        case $before in\n");
    for (int i = 0; i < n; i++) {
        const struct help_option *o = &list[i];
        if (!o->has_value) continue;
        printf("        %s)\n            takes=1 values='", o->name);
        values_each(c, o, line_each, NULL);
        printf("' ;;\n");
    }
    printf("        esac ;;\n");
}

static void bash_print(void) {
    printf("# bash completion for tally %s: `tally completion bash` prints it.\n"
           "_tally() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}\n"
           "    local options='' words='' values='' takes='' IFS=$' \\n'\n"
           "    COMPREPLY=()\n"
           "    # --name=value is three words here\n"
           "    if [ \"$word\" = = ]; then word='';\n"
           "    elif [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
           "    local topics=' help --help --man --version'\n"
           "    [ \"$COMP_CWORD\" -eq 1 ] || topics=' environment'\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ] || { [ \"$COMP_CWORD\" -eq 2 ] && [[ $command == help || $command == "
           "--man ]]; }\n"
           "    then\n"
           "        mapfile -t COMPREPLY < <(compgen -W '",
           tl_version());
    for (const struct command *c = commands; c->name; c++) printf("%s ", c->name);
    printf("'\"$topics\" -- \"$word\")\n"
           "        return\n"
           "    fi\n"
           "    case $command in\n");
    for (const struct command *c = commands; c->name; c++) bash_command(c);
    printf("    esac\n"
           "    if [ -n \"$takes\" ]; then\n"
           "        local IFS=$'\\n'\n"
           "        [ -z \"$values\" ] || mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\")\n"
           "        local i\n"
           "        for i in \"${!COMPREPLY[@]}\"; do printf -v 'COMPREPLY[i]' %%q \"${COMPREPLY[i]}\"; done\n"
           "    elif [[ $word == -* ]]; then mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
           "    elif [ \"$COMP_CWORD\" -eq 2 ]; then mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
           "    fi\n"
           "}\n"
           "complete -o default -F _tally tally\n");
}

/* ---- zsh ---- */

static void zsh_value(const char *value, int n, void *context) {
    (void)context;
    printf(" '");
    quoted(value, n, false);
    printf("'");
}

static void zsh_command(const struct command *c) {
    static struct help_option list[HELP_OPTIONS];
    char words[HELP_WORDS][24];
    int n = help_options(c, list);
    help_words(c, words);
    printf("    (%s)\n        words_of=(", c->name);
    for (int i = 0; words[i][0]; i++) printf(" %s", words[i]);
    printf(" )\n        options_of=(\n");
    for (int i = 0; i < n; i++) {
        printf("            '%s:", list[i].name);
        quoted(list[i].words.at, clause(list[i].words), true);
        printf("'\n");
    }
    printf("        )\n        case $before in\n");
    for (int i = 0; i < n; i++) {
        if (!list[i].has_value) continue;
        printf("        (%s) takes=1 values=(", list[i].name);
        values_each(c, &list[i], zsh_value, NULL);
        printf(" )%s ;;\n", strcmp(list[i].name, "--model") ? "" : " files=1"); /* a model may also be a file */
    }
    printf("        esac ;;\n");
}

static void zsh_print(void) {
    printf("#compdef tally\n"
           "# zsh completion for tally %s: `tally completion zsh` prints it.\n"
           "_tally() {\n"
           "    local -a commands_of options_of words_of values\n"
           "    local takes= files= before=$words[CURRENT-1]\n"
           "    [[ $PREFIX != --*=* ]] || { before=${PREFIX%%%%=*}; compset -P '*='; }\n"
           "    if (( CURRENT == 2 )) || { (( CURRENT == 3 )) && [[ $words[2] == (help|--man) ]]; }; then\n"
           "        commands_of=(\n",
           tl_version());
    for (const struct command *c = commands; c->name; c++) {
        printf("            '%s:", c->name);
        quoted(c->summary, (int)strlen(c->summary), true);
        printf("'\n");
    }
    printf("        )\n"
           "        if (( CURRENT == 2 )); then commands_of+=('help:explain a command' '--help:explain the program'\n"
           "            '--man:print a manual page' '--version:the version, and how it was built')\n"
           "        else commands_of+=('environment:the variables of the environment')\n"
           "        fi\n"
           "        _describe command commands_of\n"
           "        return\n"
           "    fi\n"
           "    case $words[2] in\n");
    for (const struct command *c = commands; c->name; c++) zsh_command(c);
    printf("    esac\n"
           "    if [[ -n $takes ]]; then\n"
           "        (( ! $#values )) || compadd -- $values\n"
           "        [[ -n $values && -z $files ]] || _files\n"
           "    elif [[ $PREFIX == -* ]]; then _describe option options_of\n"
           "    elif (( CURRENT == 3 && $#words_of )); then compadd -- $words_of\n"
           "    else _files\n"
           "    fi\n"
           "}\n"
           "_tally \"$@\"\n");
}

/* ---- fish ---- */

/* In single quotes, inside which fish knows two escapes of its own. */
static void fish_quoted(const char *text, int n) {
    putchar('\'');
    for (int i = 0; i < n; i++) printf("%s%c", strchr("'\\", text[i]) ? "\\" : "", text[i]);
    putchar('\'');
}

static void fish_value(const char *value, int n, void *context) {
    bool *is_first = context;
    printf("%s\"%.*s\"", *is_first ? "" : " ", n, value);
    *is_first = false;
}

/* Where a word is the first behind the command. */
#define FISH_SECOND "; and test (count (commandline -opc)) -eq 2"

static void fish_option(const struct command *c, const struct help_option *o) {
    bool is_long = o->name[1] == '-', is_first = true, is_model = !strcmp(o->name, "--model"),
         has_values = o->values.n || is_model || !strcmp(o->name, "--device");
    printf("complete -c tally -n '__fish_seen_subcommand_from %s' -%c %s", c->name, is_long ? 'l' : 's',
           o->name + 1 + is_long);
    if (o->has_value) printf(" -r");
    if (o->has_value && has_values) {
        printf("%s -a '", is_model ? "" : " -f"); /* a model may also be a file */
        values_each(c, o, fish_value, &is_first);
        printf("'");
    }
    printf(" -d ");
    fish_quoted(o->words.at, clause(o->words));
    putchar('\n');
}

static void fish_command(const struct command *c) {
    static struct help_option list[HELP_OPTIONS];
    char words[HELP_WORDS][24];
    int n = help_options(c, list);
    help_words(c, words);
    for (int i = 0; words[i][0]; i++)
        printf("complete -c tally -f -n '__fish_seen_subcommand_from %s" FISH_SECOND "' -a %s\n", c->name, words[i]);
    for (int i = 0; i < n; i++) fish_option(c, &list[i]);
}

static void fish_print(void) {
    printf("# fish completion for tally %s: `tally completion fish` prints it.\n", tl_version());
    for (const struct command *c = commands; c->name; c++) {
        printf("complete -c tally -f -n __fish_use_subcommand -a %s -d ", c->name);
        fish_quoted(c->summary, (int)strlen(c->summary));
        printf("\ncomplete -c tally -f -n '__fish_seen_subcommand_from help" FISH_SECOND "' -a %s\n", c->name);
    }
    printf("complete -c tally -f -n __fish_use_subcommand -a help -d 'explain a command'\n"
           "complete -c tally -n __fish_use_subcommand -l help -d 'explain the program'\n"
           "complete -c tally -n __fish_use_subcommand -l man -d 'print a manual page'\n"
           "complete -c tally -n __fish_use_subcommand -l version -d 'the version, and how it was built'\n"
           "complete -c tally -f -n '__fish_seen_subcommand_from help" FISH_SECOND "' -a environment\n");
    for (const struct command *c = commands; c->name; c++) fish_command(c);
}

int cmd_completion(int argc, char **argv) {
    static const struct option none[] = {{0}};
    const char *shell = NULL;
    int code = options_read("completion", none, argc, argv, &shell, 1);
    if (code) return code;
    if (shell && !strcmp(shell, "bash")) return bash_print(), 0;
    if (shell && !strcmp(shell, "zsh")) return zsh_print(), 0;
    if (shell && !strcmp(shell, "fish")) return fish_print(), 0;
    fprintf(stderr, "tally completion: %s%s (give bash, zsh or fish)\n",
            shell ? "there is no script for " : "which shell?", shell ? shell : "");
    return EXIT_USAGE;
}
