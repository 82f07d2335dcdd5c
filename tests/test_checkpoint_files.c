/* Checkpoints on disk: whole or not at all, whatever fails and whenever the process dies. */
#include "support/check.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/file.h"
#include "train/checkpoint.h"

static char run[64], folder[80]; /* folder: run/checkpoints */
static struct file_folder *run_folder;
static struct checkpoints all;

static void folder_begin(void) {
    strcpy(run, "/tmp/tally-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(run));
    snprintf(folder, sizeof folder, "%s/checkpoints", run);
    assert_non_null(run_folder = file_folder_open(run));
    assert_true(checkpoints_open(&all, run_folder, true));
}

static void folder_end(void) {
    char command[128];
    checkpoints_close(&all);
    file_folder_close(run_folder);
    snprintf(command, sizeof command, "rm -rf '%s'", run);
    assert_int_equal(system(command), 0);
}

/* The newest step for another process, which has verified nothing. */
static int64_t newest(void) {
    struct checkpoints fresh;
    assert_true(checkpoints_open(&fresh, run_folder, false));
    int64_t step = checkpoint_newest(&fresh, false);
    checkpoints_close(&fresh);
    return step;
}

static int64_t n_elements = 1000; /* of the largest tensor */

/* Two files, whose values are made from the step. */
struct content {
    tl_tensor *x[3];
    tl_named_tensor model[2], optimizer[1];
    struct trainer_part parts[2];
    char state[64];
};

static void content_make(struct content *c, double step) {
    c->x[0] = tl_full(TL_SHAPE(n_elements), step, TL_F32, NULL);
    c->x[1] = tl_full(TL_SHAPE(3, 2), step + 1, TL_BF16, NULL);
    c->x[2] = tl_full(TL_SCALAR, step + 2, TL_F64, NULL);
    c->model[0] = (tl_named_tensor){.name = "a.weight", .tensor = c->x[0]};
    c->model[1] = (tl_named_tensor){.name = "b", .tensor = c->x[1]};
    c->optimizer[0] = (tl_named_tensor){.name = "exp_avg.b", .tensor = c->x[2]};
    c->parts[0] = (struct trainer_part){.file = "model.safetensors", .tensors = c->model, .n = 2};
    c->parts[1] = (struct trainer_part){.file = "optimizer.safetensors", .tensors = c->optimizer, .n = 1};
    snprintf(c->state, sizeof c->state, "{\"step\": %g}", step);
}

static bool save(double step) {
    struct content c;
    tl_scope scope = tl_scope_begin();
    content_make(&c, step);
    bool ok = checkpoint_save(&all, (int64_t)step, c.parts, 2, c.state);
    tl_scope_end(scope);
    return ok;
}

static void expect_step(int64_t step) {
    struct content got, want;
    tl_scope scope = tl_scope_begin();
    content_make(&got, -7);
    content_make(&want, (double)step);
    struct checkpoint *c = checkpoint_open(&all, step);
    assert_non_null(c);
    expect_text(checkpoint_state(c), want.state);
    for (int i = 0; i < 2; i++) assert_true(checkpoint_load(c, &got.parts[i]));
    for (int i = 0; i < 3; i++) expect_same_bits(got.x[i], want.x[i]);
    checkpoint_close(c);
    tl_scope_end(scope);
}

static void what_is_saved_comes_back(void **state) {
    (void)state;
    folder_begin();
    expect_equal(newest(), -1);
    struct checkpoints none = {0};
    expect_equal(checkpoint_newest(&none, true), -1);
    assert_true(save(5));
    assert_true(save(40));
    expect_equal(newest(), 40);
    expect_step(5);
    expect_step(40);
    assert_true(save(40)); /* again */
    expect_step(40);
    folder_end();
}

static void old_ones_go_but_for_the_best(void **state) {
    (void)state;
    folder_begin();
    char path[128];
    for (int step = 1; step <= 5; step++) assert_true(save(step));
    snprintf(path, sizeof path, "%s/step-000000000004/manifest.json", folder);
    assert_int_equal(unlink(path), 0); /* an interrupted save */
    assert_true(checkpoint_prune(&all, 2, 1, 5));
    for (int step = 1; step <= 5; step++) {
        snprintf(path, sizeof path, "%s/step-%012d", folder, step);
        expect_equal(access(path, F_OK) == 0, step == 1 || step == 3 || step == 5);
    }
    expect_step(1);
    expect_equal(newest(), 5);
    folder_end();
}

/* ---- Damage ---- */

static void damage(const char *name, long at,
                   int how) { /* how: 'c' changes a byte, 't' cuts, 'a' appends, 'd' deletes */
    char path[160];
    snprintf(path, sizeof path, "%s/step-000000000040/%s", folder, name);
    if (how == 'd') assert_int_equal(unlink(path), 0);
    if (how == 't') assert_int_equal(truncate(path, at), 0);
    if (how != 'c' && how != 'a') return;
    FILE *file = fopen(path, how == 'a' ? "ab" : "r+b");
    if (how == 'c') {
        fseek(file, at, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 1, file);
    } else fputc('x', file);
    fclose(file);
}

static void every_damage_is_found_and_the_one_before_is_taken(void **state) {
    (void)state;
    static const struct {
        const char *file;
        long at;
        int how;
        const char *says;
    } cases[] = {
        {"model.safetensors", 1200000, 'c', "model.safetensors: the MiB at byte 1048576 is damaged"},
        {"model.safetensors", 3, 'c', "the MiB at byte 0 is damaged"},
        {"model.safetensors", 1000, 't', "model.safetensors: "},
        {"optimizer.safetensors", 0, 'a', "optimizer.safetensors: "},
        {"optimizer.safetensors", 0, 'd', "optimizer.safetensors: is missing"},
        {"state.json", 4, 'c', "state.json: "},
        {"manifest.json", 40, 'c', "manifest.json"},
        {"manifest.json", 30, 't', "manifest.json"},
        {"manifest.json", 0, 't', "manifest.json"},
    };
    n_elements = 400000; /* more than one block */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        folder_begin();
        assert_true(save(5) && save(40));
        damage(cases[i].file, cases[i].at, cases[i].how);
        expect_equal(newest(), 5);
        tl_policy policy = tl_set_error_policy(TL_RETURN);
        assert_null(checkpoint_open(&all, 40));
        if (!strstr(tl_error_message(), cases[i].says))
            fail_msg("case %zu says \"%s\", want \"%s\"", i, tl_error_message(), cases[i].says);
        tl_error_clear();
        tl_set_error_policy(policy);
        folder_end();
    }
    n_elements = 1000;
}

static int model_is_unreadable(const char *operation, const char *path) {
    return !strcmp(operation, "read") && strstr(path, "model.safetensors") ? EIO : 0;
}

/* So large that several threads read it back: damage and errors are found as in a small one, whichever thread meets
 * them. */
static void a_large_file_is_verified_by_several_threads(void **state) {
    (void)state;
    const int n_threads = tl_set_threads(3);
    n_elements = 13 << 20; /* 52 MiB */
    for (int mib = 0; mib < 52; mib += 17) {
        char says[64];
        folder_begin();
        assert_true(save(40));
        expect_equal(newest(), 40);
        damage("model.safetensors", (mib << 20) + 300, 'c');
        tl_policy policy = tl_set_error_policy(TL_RETURN);
        checkpoints_close(&all); /* another process */
        assert_true(checkpoints_open(&all, run_folder, false));
        assert_null(checkpoint_open(&all, 40));
        snprintf(says, sizeof says, "the MiB at byte %d is damaged", mib << 20);
        if (!strstr(tl_error_message(), says)) fail_msg("it says \"%s\", want \"%s\"", tl_error_message(), says);
        tl_error_clear();
        file_fault = model_is_unreadable;
        assert_null(checkpoint_open(&all, 40));
        file_fault = NULL;
        expect_equal(tl_error(), TL_ERROR_IO);
        tl_error_clear();
        tl_set_error_policy(policy);
        folder_end();
    }
    n_elements = 1000;
    tl_set_threads(n_threads);
}

/* Newer ones that are damaged, as many as are kept: they are set aside, not counted, and not deleted. */
static void the_step_that_was_saved_is_never_pruned(void **state) {
    (void)state;
    char path[128];
    for (int keep = 1; keep <= 2; keep++) {
        folder_begin();
        assert_true(save(30) && save(40));
        damage("model.safetensors", 200, 'c');
        snprintf(path, sizeof path, "%s/step-000000000030/state.json", folder);
        if (keep == 2) assert_int_equal(truncate(path, 3), 0);
        checkpoints_close(&all); /* another process */
        assert_true(checkpoints_open(&all, run_folder, false));
        assert_true(save(5) && checkpoint_prune(&all, keep, -1, 5) && checkpoint_check(&all, 5));
        expect_step(5);
        expect_equal(newest(), keep == 2 ? 5 : 30);
        snprintf(path, sizeof path, "%s/damaged-step-000000000040/model.safetensors", folder);
        expect_equal(access(path, F_OK), 0);
        folder_end();
    }
}

/* A manifest with a right checksum and wrong contents: its contents are still checked. */
static void put_manifest(const char *body) {
    char path[128], text[1024];
    snprintf(path, sizeof path, "%s/step-000000000040/manifest.json", folder);
    snprintf(text, sizeof text, "{\"body\":%s,\"crc32c\":\"%08x\"}", body, crc32c(0, body, strlen(body)));
    assert_true(file_put(path, text, strlen(text)));
}

static void manifests_with_a_right_checksum_are_not_believed_either(void **state) {
    (void)state;
    static const char *const bodies[][2] = {
        {"{\"block_bytes\":1048576,\"files\":[{\"bytes\":1,\"crc32c\":[\"0\"],\"name\":\"../"
         "x\"}],\"schema\":\"tally.checkpoint/"
         "1\",\"step\":40}",
         "lacks name, bytes or crc32c"},
        {"{\"block_bytes\":1048576,\"files\":[{\"bytes\":-1,\"crc32c\":[],\"name\":\"state.json\"}],\"schema\":"
         "\"tally.checkpoint/1\",\"step\":40}",
         "state.json: "},
        {"{\"block_bytes\":1048576,\"files\":[7],\"schema\":\"tally.checkpoint/1\",\"step\":40}", "lacks name"},
        {"{\"block_bytes\":1048576,\"files\":{},\"schema\":\"tally.checkpoint/1\",\"step\":40}",
         "is not the manifest of step"},
        {"{\"block_bytes\":1,\"files\":[],\"schema\":\"tally.checkpoint/1\",\"step\":40}",
         "is not the manifest of step"},
        {"{\"block_bytes\":1048576,\"files\":[],\"schema\":\"tally.checkpoint/1\",\"step\":41}",
         "is not the manifest of step"},
        {"{\"block_bytes\":1048576,\"files\":[],\"schema\":\"other\",\"step\":40}", "schema \"other\""},
    };
    folder_begin();
    assert_true(save(40));
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        put_manifest(bodies[i][0]);
        tl_policy policy = tl_set_error_policy(TL_RETURN);
        assert_null(checkpoint_open(&all, 40));
        if (!strstr(tl_error_message(), bodies[i][1]))
            fail_msg("case %zu says \"%s\", want \"%s\"", i, tl_error_message(), bodies[i][1]);
        tl_error_clear();
        tl_set_error_policy(policy);
    }
    folder_end();
}

static void tensors_must_be_there_in_dtype_and_shape(void **state) {
    (void)state;
    folder_begin();
    assert_true(save(5));
    struct checkpoint *c = checkpoint_open(&all, 5);
    tl_named_tensor wrong = {.name = "c", .tensor = tl_ones(TL_SHAPE(3, 2), TL_BF16, NULL)};
    struct trainer_part part = {.file = "model.safetensors", .tensors = &wrong, .n = 1};
    expect_refused(checkpoint_load(c, &part), "has no tensor \"c\"");
    wrong.name = "b";
    assert_true(checkpoint_load(c, &part));
    wrong.tensor = tl_ones(TL_SHAPE(3, 2), TL_F32, NULL);
    expect_refused(checkpoint_load(c, &part), "\"b\" is bf16[3,2]@cpu (need f32[3,2]@cpu)");
    wrong.tensor = tl_ones(TL_SHAPE(2, 3), TL_BF16, NULL);
    expect_refused(checkpoint_load(c, &part), "(need bf16[2,3]@cpu)");
    checkpoint_close(c);
    folder_end();
}

/* ---- Failures and kills at every call to the system ---- */

static int fault_at, calls, fault_reason;
static int fault_or_kill(const char *operation, const char *path) {
    (void)operation, (void)path;
    if (++calls != fault_at) return 0;
    if (fault_reason) return fault_reason;
    kill(getpid(), SIGKILL);
    return 0;
}

static void a_save_that_fails_anywhere_leaves_the_one_before(void **state) {
    (void)state;
    static const int reasons[] = {EIO, ENOSPC};
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    for (size_t r = 0; r < sizeof reasons / sizeof *reasons; r++) {
        bool ok = false;
        for (fault_at = 1; !ok; fault_at++) {
            folder_begin();
            assert_true(save(5));
            calls = 0;
            fault_reason = reasons[r];
            file_fault = fault_or_kill;
            ok = save(40);
            file_fault = NULL;
            expect_equal(tl_error() == TL_OK, ok);
            tl_error_clear();
            int64_t found = newest();
            expect_true(found == 5 || found == 40);
            if (ok) expect_equal(found, 40);
            expect_step(found);
            folder_end();
        }
        assert_true(fault_at > 20); /* there were that many calls */
    }
    tl_set_error_policy(policy);
}

/* Two that are kept, one that is not, one that is damaged, one that was never finished: whatever fails, the newest
 * whole one stays. */
static void a_sweep_and_prune_that_fail_anywhere_leave_what_is_kept(void **state) {
    (void)state;
    char path[128];
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool is_over = false;
    for (fault_at = 1; !is_over; fault_at++) {
        folder_begin();
        for (int step = 10; step <= 50; step += 10) assert_true(save(step));
        damage("state.json", 4, 'c'); /* of 40 */
        snprintf(path, sizeof path, "%s/step-000000000050/manifest.json", folder);
        assert_int_equal(unlink(path), 0);
        checkpoints_close(&all);
        assert_true(checkpoints_open(&all, run_folder, false));
        calls = 0;
        fault_reason = EIO;
        file_fault = fault_or_kill;
        bool ok = checkpoint_sweep(&all) && checkpoint_newest(&all, true) == 30 && checkpoint_prune(&all, 2, -1, 30);
        file_fault = NULL;
        is_over = calls < fault_at;
        if (is_over) expect_true(ok);
        expect_equal(tl_error() == TL_OK, ok);
        tl_error_clear();
        expect_equal(newest(), 30);
        expect_step(20);
        folder_end();
    }
    assert_true(fault_at > 30);
    tl_set_error_policy(policy);
}

static void a_process_killed_anywhere_leaves_a_whole_one(void **state) {
    (void)state;
    bool finished = false;
    for (fault_at = 1; !finished; fault_at++) {
        folder_begin();
        assert_true(save(5));
        pid_t child = fork();
        if (child == 0) {
            calls = fault_reason = 0;
            file_fault = fault_or_kill;
            _exit(save(40) ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        expect_true(finished || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        int64_t found = newest();
        expect_true(found == 5 || found == 40);
        expect_step(found);
        assert_true(save(40)); /* the remains do not matter */
        expect_equal(newest(), 40);
        expect_step(40);
        folder_end();
    }
    assert_true(fault_at > 20);
}

static void every_allocation_of_a_save_may_fail(void **state) {
    (void)state;
    folder_begin();
    assert_true(save(5));
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool ok = false;
    struct content c;
    content_make(&c, 40);
    for (uint64_t n = 1; !ok; n++) {
        tl_fail_allocation(n, false);
        ok = checkpoint_save(&all, 40, c.parts, 2, c.state);
        tl_fail_allocation(0, false);
        expect_equal(ok ? TL_OK : TL_ERROR_MEMORY, tl_error());
        tl_error_clear();
        int64_t found = newest();
        expect_true(found == 5 || found == 40);
    }
    tl_set_error_policy(policy);
    folder_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_saved_comes_back),
        TEST(old_ones_go_but_for_the_best),
        TEST(every_damage_is_found_and_the_one_before_is_taken),
        TEST(a_large_file_is_verified_by_several_threads),
        TEST(the_step_that_was_saved_is_never_pruned),
        TEST(manifests_with_a_right_checksum_are_not_believed_either),
        TEST(tensors_must_be_there_in_dtype_and_shape),
        TEST(a_save_that_fails_anywhere_leaves_the_one_before),
        TEST(a_sweep_and_prune_that_fail_anywhere_leave_what_is_kept),
        TEST(a_process_killed_anywhere_leaves_a_whole_one),
        TEST(every_allocation_of_a_save_may_fail),
    };
    return cmocka_run_group_tests_name("checkpoint_files", tests, NULL, NULL);
}
