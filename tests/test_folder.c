/* A run's folder: foreign files are not touched, no link is followed, damage is found, and saved files exist. */
#include "support/check.h"
#include "support/runs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "train/checkpoint.h"
#include "train/run.h"

/* ---- Runs ---- */

static char lines[4096]; /* of the log */
static void line_keep(const char *line, void *context) {
    (void)context;
    size_t n = strlen(lines);
    snprintf(lines + n, sizeof lines - n, "%s\n", line);
}

static enum run_end try(const struct settings *s, int64_t stop_after, struct run_summary *summary) {
    *lines = 0;
    tl_set_log_hook(line_keep, NULL);
    enum run_end end = run_until(s, stop_after, summary);
    tl_set_log_hook(NULL, NULL);
    return end;
}

static struct run_summary train(const struct settings *s, int64_t stop_after, enum run_end want) {
    struct run_summary summary;
    enum run_end end = try(s, stop_after, &summary);
    if (end != want) fail_msg("the run ended with %d, want %d: %s", (int)end, (int)want, tl_error_message());
    return summary;
}

static void expect_refusal(const struct settings *s, const char *part) {
    struct run_summary summary;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    expect_equal(try(s, 0, &summary), RUN_FAILED);
    if (!strstr(tl_error_message(), part)) fail_msg("the error is \"%s\", want \"%s\"", tl_error_message(), part);
    tl_error_clear();
    tl_set_error_policy(policy);
}

/* Twelve steps that take a moment: no evaluations, no samples. */
static struct settings quick_run(const char *out) {
    struct settings s = small_run(TL_LLAMA, 2000);
    set(&s, "val_share", "0"), set(&s, "sample_tokens", "0"), set(&s, "save_best", "false");
    set_path(&s, "out", out);
    return s;
}

/* ---- Files ---- */

static const char *path_of(const struct settings *s, const char *file) {
    static char paths[4][SETTING_TEXT + 160];
    static int at;
    at = (at + 1) % 4;
    snprintf(paths[at], sizeof paths[at], "%s/%s", s->out, file);
    return paths[at];
}
static bool has(const struct settings *s, const char *file) {
    struct stat status;
    return lstat(path_of(s, file), &status) == 0;
}
static void shell(const char *format, ...) TL_PRINTF(1, 2);
static void shell(const char *format, ...) {
    char command[8 * SETTING_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    if (system(command)) fail_msg("%s", command);
}
static void put(const struct settings *s, const char *file, const char *text) {
    FILE *f = fopen(path_of(s, file), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}
static void expect_text_in(const char *path, const char *want) {
    size_t n;
    char *text = file_get(path, 1 << 20, &n);
    if (!text || strcmp(text, want)) fail_msg("%s has \"%s\", want \"%s\"", path, text ? text : "nothing", want);
    memory_free(text);
}

/* 'f' flips a bit in the middle, 'h' halves, 'z' fills with zeros, 'e' empties, 'g' writes something else, 'd' deletes.
 * */
static void damage(const struct settings *s, const char *file, char how) {
    const char *path = path_of(s, file);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    long half = (long)status.st_size / 2;
    if (how == 'd') shell("rm -r '%s'", path);
    if (how == 'h') assert_int_equal(truncate(path, half), 0);
    if (how == 'e' || how == 'z') assert_int_equal(truncate(path, 0), 0);
    if (how == 'z') assert_int_equal(truncate(path, status.st_size), 0);
    if (how == 'g') put(s, file, "this is something else\n");
    if (how != 'f') return;
    FILE *f = fopen(path, "r+b");
    fseek(f, half, SEEK_SET);
    int byte = fgetc(f);
    fseek(f, half, SEEK_SET);
    fputc(byte ^ 1, f);
    fclose(f);
}

static int n_entries(const struct settings *s, const char *sub, const char *prefix) {
    DIR *dir = opendir(path_of(s, sub));
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) n += *e->d_name != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
    closedir(dir);
    return n;
}

static void expect_same(const struct settings *a, const struct settings *b, const char *file) {
    size_t n_a, n_b;
    char *x = file_get(path_of(a, file), 1 << 26, &n_a), *y = file_get(path_of(b, file), 1 << 26, &n_b);
    if (!x || !y || n_a != n_b || memcmp(x, y, n_a)) fail_msg("%s/%s and %s/%s differ", a->out, file, b->out, file);
    memory_free(x);
    memory_free(y);
}
static const char *step_file(int64_t step, const char *file) {
    static char text[128];
    snprintf(text, sizeof text, "checkpoints/step-%012lld%s%s", (long long)step, *file ? "/" : "", file);
    return text;
}

/* ---- Saved checkpoints stay ---- */

/* The newest checkpoints are damaged, all that the rule keeps; then the run is stopped after fewer steps than they had.
 * */
static void saves_stay_when_newer_ones_are_damaged(void **state) {
    (void)state;
    base_begin();
    struct settings whole = quick_run("whole");
    train(&whole, 0, RUN_DONE);
    for (int keep = 1; keep <= 2; keep++) {
        char name[32], number[16];
        snprintf(name, sizeof name, "keep-%d", keep), snprintf(number, sizeof number, "%d", keep);
        struct settings s = quick_run(name);
        set(&s, "keep", number), set(&s, "save_every", "3");
        int64_t saved = train(&s, 9, RUN_STOPPED).steps;
        expect_equal(n_entries(&s, "checkpoints", "step-"), keep);
        damage(&s, step_file(saved, "model.safetensors"), 'f');
        if (keep == 2) damage(&s, step_file(saved == 9 ? 6 : 9, "optimizer.safetensors"), 'h');
        struct run_summary again = train(&s, 4, RUN_STOPPED);
        expect_equal(again.first_step, 0);
        assert_non_null(strstr(lines, "is damaged and renamed to "));
        assert_non_null(strstr(lines, "no whole checkpoint is left"));
        expect_equal(n_entries(&s, "checkpoints", "damaged-step-"), keep);
        expect_true(has(&s, step_file(again.steps, "manifest.json")));
        struct run_summary last = train(&s, 0, RUN_DONE);
        expect_equal(last.first_step, again.steps);
        expect_equal(last.differences, 0);
        expect_equal(n_entries(&s, "checkpoints", "step-"), keep);
        expect_equal(n_entries(&s, "checkpoints", "damaged-step-"), keep); /* until the user deletes them */
        expect_same(&whole, &s, "final/model.safetensors");
    }
    base_end();
}

/* One of several: the run resumes from the one before, and keeps as many whole ones as the settings say. */
static void only_whole_checkpoints_are_counted(void **state) {
    (void)state;
    base_begin();
    struct settings s = quick_run("run");
    set(&s, "keep", "2"), set(&s, "save_every", "2");
    train(&s, 8, RUN_STOPPED);
    expect_true(has(&s, step_file(6, "")) && has(&s, step_file(8, "")));
    damage(&s, step_file(6, "state.json"), 'f');
    train(&s, 9, RUN_STOPPED); /* saves 9 or 10, and must not delete 8 for the sake of 6 */
    expect_true(has(&s, step_file(8, "manifest.json")));
    expect_true(!has(&s, step_file(6, "")) && has(&s, "checkpoints/damaged-step-000000000006/state.json"));
    damage(&s, step_file(8, "manifest.json"), 'g');
    expect_equal(train(&s, 0, RUN_DONE).differences, 0);
    base_end();
}

/* A checkpoint that cannot be read is not called damaged: its bytes may be right. */
static int weights_are_not_ours(const char *operation, const char *path) {
    return !strcmp(operation, "open") && strstr(path, "checkpoints/") && strstr(path, "model.safetensors") ? EACCES : 0;
}
static void what_cannot_be_read_is_not_damaged(void **state) {
    (void)state;
    base_begin();
    struct settings s = quick_run("run");
    int64_t saved = train(&s, 5, RUN_STOPPED).steps;
    file_fault = weights_are_not_ours;
    expect_refusal(&s, "Permission denied (cannot check whether this checkpoint is whole; rename ");
    file_fault = NULL;
    expect_equal(n_entries(&s, "checkpoints", "damaged-"), 0);
    expect_equal(train(&s, 0, RUN_DONE).first_step, saved);
    base_end();
}

/* ---- Folders of others ---- */

static const char *const own_names[] = {"config.json",  "price.json", "receipt.json",
                                        "machine.json", "run.json",   "log.jsonl",
                                        "stories.txt",  "lock",       "events.out.tfevents.tally"};
enum { N_OWN = sizeof own_names / sizeof *own_names };

static void files_of_others_stay_as_they_are(void **state) {
    (void)state;
    base_begin();
    for (int i = 0; i < N_OWN + 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "other-%d", i);
        struct settings s = quick_run(name);
        set(&s, "data", "builtin");
        const char *folder = i % 2 ? "final" : "checkpoints", *file = i < N_OWN ? own_names[i] : folder;
        assert_int_equal(mkdir(s.out, 0777), 0);
        if (i < N_OWN) put(&s, file, "mine\n");
        else assert_int_equal(mkdir(path_of(&s, file), 0777), 0);
        if (i >= N_OWN + 2) shell("echo mine >'%s/%s/file'", s.out, folder);
        put(&s, "notes.txt", "mine too\n");
        expect_refusal(&s, file);
        expect_equal(n_entries(&s, ".", ""), 2); /* nothing was made there */
        expect_text_in(path_of(&s, "notes.txt"), "mine too\n");
        if (i < N_OWN) expect_text_in(path_of(&s, file), "mine\n");
        if (i >= N_OWN + 2) shell("grep -q mine '%s/%s/file'", s.out, folder);
    }
    struct settings s = quick_run("beside"); /* files that the run does not use do not matter */
    assert_int_equal(mkdir(s.out, 0777), 0);
    put(&s, "notes.txt", "mine\n"), put(&s, "stories.txt", "mine\n"), put(&s, ".tally-1-1.tmp", "mine\n");
    train(&s, 0, RUN_DONE);
    expect_text_in(path_of(&s, "notes.txt"), "mine\n");
    expect_text_in(path_of(&s, "stories.txt"), "mine\n");
    expect_text_in(path_of(&s, ".tally-1-1.tmp"), "mine\n"); /* the folder was not the run's yet */
    base_end();
}

/* Through links, by paths and by names, whole folders and single files. */
static void what_a_run_reads_is_not_in_its_folder(void **state) {
    (void)state;
    base_begin();
    struct settings s = quick_run("run"), given = s;
    assert_int_equal(mkdir(s.out, 0777), 0);
    shell("cp '%s' '%s/mine.txt'", given.data, s.out);
    shell("cp '%s' '%s/config-of-model.json'", given.model, s.out);
    shell("mkdir '%s/sub' && cp '%s/mine.txt' '%s/sub'", s.out, s.out, s.out);
    shell("ln -s '%s/sub/mine.txt' '%s-link'", s.out, s.out);
    shell("ln -s '%s' '%s-folder'", s.out, s.out);
    set(&s, "data", path_of(&s, "mine.txt"));
    expect_refusal(&s, "mine.txt lies in the run's own folder");
    set(&s, "data", path_of(&s, "sub/mine.txt"));
    expect_refusal(&s, "data: ");
    set_path(&s, "data", "run-link");
    expect_refusal(&s, "lies in the run's own folder");
    s = given, set(&s, "data", path_of(&s, "mine.txt"));
    set_path(&s, "out", "run-folder");
    expect_refusal(&s, "lies in the run's own folder");
    s = given, set(&s, "val_data", path_of(&s, "mine.txt"));
    expect_refusal(&s, "val_data: ");
    s = given, set(&s, "model", path_of(&s, "config-of-model.json"));
    expect_refusal(&s, "model: ");
    expect_equal(n_entries(&given, ".", ""), 3);
    train(&given, 0, RUN_DONE); /* files there that are not used do not matter */
    expect_same(&given, &given, "mine.txt");
    base_end();
}

/* A record that is missing, empty or nonsense: with a whole checkpoint the folder is recognized, without one it is
 * refused. */
static void a_lost_record_is_found_again_or_refused(void **state) {
    (void)state;
    static const char hows[] = "defgz";
    base_begin();
    struct settings whole = quick_run("whole");
    train(&whole, 0, RUN_DONE);
    for (int i = 0; hows[i]; i++) {
        char name[16];
        snprintf(name, sizeof name, "run-%c", hows[i]);
        struct settings s = quick_run(name);
        int64_t saved = train(&s, 5, RUN_STOPPED).steps;
        damage(&s, "run.json", hows[i]);
        expect_equal(train(&s, 0, RUN_DONE).first_step, saved);
        expect_equal(has(&s, "damaged-run.json"), hows[i] != 'd');
        expect_same(&whole, &s, "final/model.safetensors");
        train(&s, 0, RUN_DONE);
        expect_text(lines, "");
        damage(&s, "run.json", hows[i]);
        shell("rm -r '%s'/checkpoints/step-*", s.out);
        expect_refusal(&s, hows[i] == 'd' ? "checkpoints: exists" : "run.json: exists");
        expect_same(&whole, &s, "final/model.safetensors");
    }
    struct settings s = quick_run("mixed"); /* a checkpoint does not make a foreign file of that name the run's */
    train(&s, 5, RUN_STOPPED);
    damage(&s, "run.json", 'd'), put(&s, "price.json", "mine\n");
    expect_refusal(&s, "price.json: exists, and no record says that a run made it");
    expect_text_in(path_of(&s, "price.json"), "mine\n");
    base_end();
}

/* ---- Links ---- */

static void no_link_is_followed(void **state) {
    (void)state;
    static const char *const places[] = {"log.jsonl",
                                         "events.out.tfevents.tally",
                                         "config.json",
                                         "price.json",
                                         "receipt.json",
                                         "machine.json",
                                         "run.json",
                                         "lock",
                                         "stories.txt",
                                         "checkpoints",
                                         "final",
                                         "final/model.safetensors",
                                         "final/config.json"};
    base_begin();
    struct settings given = quick_run("given");
    set(&given, "data", "builtin");
    train(&given, 0, RUN_DONE);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char name[32], target[128];
        snprintf(name, sizeof name, "run-%zu", i);
        struct settings s = given;
        set_path(&s, "out", name);
        snprintf(target, sizeof target, "%s/target-%zu", base, i);
        shell("cp -r '%s' '%s'", given.out, s.out);
        shell("mv '%s' '%s'", path_of(&s, places[i]), target);
        assert_int_equal(symlink(target, path_of(&s, places[i])), 0);
        expect_refusal(&s, "is a symbolic link, and links are not followed here");
        shell("diff -r '%s' '%s' >/dev/null", path_of(&given, places[i]), target);
    }
    struct settings s = given; /* parts of a checkpoint: it is then damaged, and the run trains again */
    set_path(&s, "out", "step");
    shell("cp -r '%s' '%s'", given.out, s.out);
    shell("mv '%s' '%s/aside'", path_of(&s, step_file(12, "model.safetensors")), base);
    shell("ln -s '%s/aside' '%s'", base, path_of(&s, step_file(12, "model.safetensors")));
    damage(&s, "final", 'd');
    expect_equal(train(&s, 0, RUN_DONE).first_step, 0);
    expect_same(&given, &s, "final/model.safetensors");
    shell("cmp -s '%s' '%s/aside'", path_of(&given, step_file(12, "model.safetensors")), base);
    set_path(&s, "out", "way"); /* links in the path to the folder are the user's */
    shell("ln -s '%s' '%s'", given.out, s.out);
    expect_equal(train(&s, 0, RUN_DONE).first_step, 12);
    base_end();
}

/* A copy by hard links (cp -l) does not change with the run. */
static void a_log_with_a_second_name_is_copied(void **state) {
    (void)state;
    base_begin();
    struct settings s = quick_run("run");
    train(&s, 5, RUN_STOPPED);
    shell("cp -al '%s' '%s-backup'", s.out, s.out);
    shell("cp -r '%s-backup' '%s-want'", s.out, s.out);
    train(&s, 0, RUN_DONE);
    shell("diff -r '%s-backup' '%s-want'", s.out, s.out);
    base_end();
}

/* ---- A run that is done ---- */

static void what_is_damaged_in_a_run_that_is_done_is_written_again(void **state) {
    (void)state;
    static const struct {
        const char *file, *hows;
    } cases[] = {{"final", "d"},
                 {"final/model.safetensors", "dhzfe"},
                 {"final/config.json", "dgf"},
                 {"receipt.json", "dgeh"},
                 {"price.json", "dgehf"},
                 {"config.json", "dgz"},
                 {"machine.json", "dge"}};
    base_begin();
    struct settings s = quick_run("run"), first = s;
    train(&s, 0, RUN_DONE);
    shell("cp -r '%s' '%s-first'", s.out, s.out);
    set_path(&first, "out", "run-first");
    train(&s, 0, RUN_DONE);
    expect_text(lines, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (const char *how = cases[i].hows; *how; how++) {
            char want[64];
            damage(&s, cases[i].file, *how);
            struct run_summary summary = train(&s, 0, RUN_DONE);
            expect_equal(summary.first_step, 12);
            expect_equal(summary.differences, 0);
            snprintf(want, sizeof want, "%.*s was missing or damaged", (int)strcspn(cases[i].file, "/"), cases[i].file);
            if (!strstr(lines, want)) fail_msg("%s, %c: the log has \"%s\"", cases[i].file, *how, lines);
            expect_same(&first, &s, "final/model.safetensors");
            expect_same(&first, &s, "final/config.json");
            for (int k = 0; k < 4; k++) expect_same(&first, &s, own_names[k]);
            train(&s, 0, RUN_DONE);
            expect_text(lines, ""); /* all is well again */
        }
    damage(&s, "log.jsonl", 'h'), damage(&s, "events.out.tfevents.tally", 'h'); /* nothing is made up */
    train(&s, 0, RUN_DONE);
    assert_non_null(strstr(lines, "log.jsonl is damaged"));
    assert_non_null(strstr(lines, "events.out.tfevents.tally is damaged"));
    shell("python3 -c 'import json,sys; [json.loads(l) for l in open(sys.argv[1])]' '%s'", path_of(&s, "log.jsonl"));
    shell("rm -r '%s'/checkpoints/step-*", s.out); /* a missing checkpoint does not make it train again */
    expect_refusal(&s, "this run is done and its weights are whole in final/");
    expect_same(&first, &s, "final/model.safetensors");
    base_end();
}

/* The same in the middle of a run: derived files are the same, and price and receipt agree at the end. */
static void what_is_damaged_in_the_middle_is_made_again(void **state) {
    (void)state;
    static const char *const files[] = {"price.json", "config.json", "receipt.json", "machine.json", "log.jsonl"};
    base_begin();
    struct settings whole = quick_run("whole");
    train(&whole, 0, RUN_DONE);
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "run-%d", i);
        struct settings s = quick_run(name);
        set(&s, "save_every", "4");
        int64_t saved = train(&s, 7, RUN_STOPPED).steps;
        set(&s, "save_every", "3"); /* the price knows of both */
        damage(&s, files[i], i == 4 ? 'h' : 'f');
        struct run_summary summary = train(&s, 0, RUN_DONE);
        expect_equal(summary.first_step, saved);
        expect_equal(summary.differences, 0);
        expect_same(&whole, &s, "final/model.safetensors");
    }
    struct settings s = quick_run("conflict"); /* config.json lost, and other settings given */
    train(&s, 5, RUN_STOPPED);
    damage(&s, "config.json", 'd');
    set(&s, "lr", "0.5");
    expect_refusal(&s, "this run was started with --lr ");
    base_end();
}

/* ---- What killed processes leave ---- */

static void leftovers_are_swept_and_nothing_else(void **state) {
    (void)state;
    base_begin();
    struct settings s = quick_run("run");
    set(&s, "save_every", "2"), set(&s, "keep", "2");
    train(&s, 6, RUN_STOPPED);
    expect_true(has(&s, step_file(4, "")) && has(&s, step_file(6, "")));
    /* complete, and one that pruning should have removed; the others were never finished, or have a file that no save
     * makes */
    shell("cp -r '%s' '%s'", path_of(&s, step_file(6, "")), path_of(&s, "kept"));
    struct settings keep_more = s;
    set_path(&keep_more, "out", "other"), set(&keep_more, "keep", "9");
    train(&keep_more, 6, RUN_STOPPED);
    shell("cp -r '%s' '%s'", path_of(&keep_more, step_file(2, "")), path_of(&s, step_file(2, "")));
    shell("mkdir '%s'", path_of(&s, step_file(3, "")));
    shell("cp -r '%s' '%s'", path_of(&s, "kept"), path_of(&s, step_file(11, "")));
    damage(&s, step_file(11, "manifest.json"), 'd');
    shell("cp -r '%s' '%s'", path_of(&s, "kept"), path_of(&s, step_file(1, "")));
    damage(&s, step_file(1, "manifest.json"), 'd');
    put(&s, step_file(1, "notes.txt"), "mine\n");
    put(&s, ".tally-1-1.tmp", "x"), put(&s, "checkpoints/.tally-1-2.tmp", "x"),
        put(&s, step_file(6, ".tally-1-3.tmp"), "x");
    struct file_writer *living = file_writer_new(path_of(&s, "something"));
    assert_non_null(living);
    expect_equal(train(&s, 7, RUN_STOPPED).first_step, 6);
    expect_true(file_writer_commit(living)); /* its temporary was not swept away */
    expect_true(has(&s, "something") && !has(&s, ".tally-1-1.tmp") && !has(&s, "checkpoints/.tally-1-2.tmp"));
    expect_true(!has(&s, step_file(2, "")) && !has(&s, step_file(3, "")) && !has(&s, step_file(11, "")));
    expect_true(has(&s, step_file(6, "manifest.json")) && !has(&s, step_file(6, ".tally-1-3.tmp")));
    expect_text_in(path_of(&s, step_file(1, "notes.txt")), "mine\n");
    expect_true(!has(&s, step_file(1, "model.safetensors")));
    train(&keep_more, 0, RUN_DONE);
    set(&keep_more, "keep", "1"); /* given later, it deletes nothing of a finished run */
    train(&keep_more, 0, RUN_DONE);
    for (int step = 2; step <= 12; step += 2) expect_true(has(&keep_more, step_file(step, "manifest.json")));
    base_end();
}

/* ---- Every call to the system ---- */

static int fault_at, n_calls, fault_reason;
static int fault_or_kill(const char *operation, const char *path) {
    (void)operation, (void)path;
    if (++n_calls != fault_at) return 0;
    if (fault_reason) return fault_reason;
    kill(getpid(), SIGKILL);
    return 0;
}

/* Three steps, saved each, and the folder as it is when it begins: fresh, or stopped with a damaged checkpoint, or done
 * and damaged. */
static struct settings fault_run(const char *out, int kind) {
    struct settings s = quick_run(out);
    set(&s, "steps", "3"), set(&s, "warmup", "1"), set(&s, "save_every", "1"), set(&s, "keep", "1");
    if (kind) train(&s, kind == 1 ? 1 : 0, kind == 1 ? RUN_STOPPED : RUN_DONE);
    if (kind == 1) shell("cd '%s'/checkpoints && echo x >>$(ls | tail -1)/state.json", s.out);
    if (kind == 2) damage(&s, "final/model.safetensors", 'f'), damage(&s, "price.json", 'f');
    if (kind == 2) damage(&s, "receipt.json", 'd');
    return s;
}

static void a_call_that_fails_anywhere_is_an_error_and_loses_nothing(void **state) {
    (void)state;
    static const int reasons[] = {EIO, ENOSPC, EACCES, EMFILE};
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    base_begin();
    struct settings whole = fault_run("whole", 0);
    train(&whole, 0, RUN_DONE);
    int stride = getenv("TALLY_SOAK") ? 1 : IS_SANITIZED ? 97 : 37, n_failed = 0;
    for (int kind = 0; kind < 3; kind++)
        for (int at = 1 + kind, is_over = 0; !is_over; at += stride) {
            char name[32];
            struct run_summary summary;
            snprintf(name, sizeof name, "run-%d-%d", kind, at);
            struct settings s = fault_run(name, kind);
            n_calls = 0, fault_at = at, fault_reason = reasons[at % 4];
            file_fault = fault_or_kill;
            enum run_end end = try(&s, 0, &summary);
            file_fault = NULL;
            is_over = n_calls < at;
            n_failed += end == RUN_FAILED;
            if ((end == RUN_FAILED) != (tl_error() != TL_OK) || (end != RUN_FAILED && end != RUN_DONE))
                fail_msg("kind %d, call %d: end %d, \"%s\"", kind, at, (int)end, tl_error_message());
            tl_error_clear();
            if (end == RUN_DONE) expect_same(&whole, &s, "final/model.safetensors");
            expect_equal(train(&s, 0, RUN_DONE).differences, 0);
            expect_same(&whole, &s, "final/model.safetensors");
            shell("rm -r '%s'", s.out);
        }
    print_message("    %d runs failed and went on\n", n_failed);
    expect_true(n_failed > 10);
    base_end();
    tl_set_error_policy(policy);
}

static void a_process_killed_anywhere_loses_nothing(void **state) {
    (void)state;
    base_begin();
    struct settings whole = fault_run("whole", 0);
    train(&whole, 0, RUN_DONE);
    int stride = getenv("TALLY_SOAK") ? 1 : IS_SANITIZED ? 151 : 61, n_killed = 0;
    for (int kind = 0; kind < 3; kind++)
        for (int at = 1 + kind, is_over = 0; !is_over; at += stride) {
            char name[32];
            int status;
            snprintf(name, sizeof name, "run-%d-%d", kind, at);
            struct settings s = fault_run(name, kind);
            pid_t child = fork();
            if (child == 0) {
                struct run_summary summary;
                n_calls = fault_reason = 0, fault_at = at, file_fault = fault_or_kill;
                _exit(try(&s, 0, &summary) == RUN_DONE ? 0 : 1);
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            is_over = WIFEXITED(status);
            if (is_over) expect_equal(WEXITSTATUS(status), 0);
            n_killed += !is_over;
            expect_equal(train(&s, 0, RUN_DONE).differences, 0);
            expect_same(&whole, &s, "final/model.safetensors");
            expect_equal(n_entries(&s, "checkpoints", "step-"), 1);
            shell("! find '%s' -name '.tally-*' | grep -q .", s.out);
            shell("rm -r '%s'", s.out);
        }
    print_message("    %d processes were killed\n", n_killed);
    expect_true(n_killed > 10);
    base_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(saves_stay_when_newer_ones_are_damaged),
        TEST(only_whole_checkpoints_are_counted),
        TEST(what_cannot_be_read_is_not_damaged),
        TEST(files_of_others_stay_as_they_are),
        TEST(what_a_run_reads_is_not_in_its_folder),
        TEST(a_lost_record_is_found_again_or_refused),
        TEST(no_link_is_followed),
        TEST(a_log_with_a_second_name_is_copied),
        TEST(what_is_damaged_in_a_run_that_is_done_is_written_again),
        TEST(what_is_damaged_in_the_middle_is_made_again),
        TEST(leftovers_are_swept_and_nothing_else),
        TEST(a_call_that_fails_anywhere_is_an_error_and_loses_nothing),
        TEST(a_process_killed_anywhere_loses_nothing),
    };
    return cmocka_run_group_tests_name("folder", tests, NULL, NULL);
}
