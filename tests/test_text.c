/* Untrusted text and JSON: how they are printed, and the memory they may take. */
#include "support/check.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

/* ---- Text ---- */

/* 0.7 is 0.7, also in JSON; every number reads back as itself, and a real stays a real. */
static void numbers_have_no_more_digits_than_they_need(void **state) {
    (void)state;
    static const double values[] = {0.7,  0.95, 4e-3, 0.1 + 0.2, 1.0 / 3, 1e300 / 3, 5e-324, 1234567890123456.0,
                                    -0.8, 1e22};
    static const char *const texts[] = {"0.7", "0.95", "0.004", "0.30000000000000004"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[NUMBER_TEXT];
        int length = number_shortest(text, values[i]);
        expect_equal(length, (int)strlen(text));
        expect_true(number_parse(text, NULL) == values[i]);
        if (i < sizeof texts / sizeof *texts) expect_text(text, texts[i]);
    }
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) json_array_append_new(list, json_real(values[i]));
    json_array_append_new(list, json_string("0.69999999999999996 \"0.69999999999999996\\"));
    json_array_append_new(list, json_integer(1234567890123456789));
    char *text = json_print(list, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_t *back = json_parse(text, NULL);
    expect_true(json_equal(list, back));
    expect_true(!strncmp(text, "[0.7,0.95,0.004,0.30000000000000004,", 36));
    json_decref(back);
    json_decref(list);
    memory_free(text);
}

static void numbers_are_written_as_people_write_them(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *amount, *dollars;
    } rows[] = {{0, "0", "$0.00"},
                {4.321, "4.321", "$4.32"},
                {143.93, "143.9", "$143.93"},
                {999.96, "1,000", "$999.96"},
                {2476.4, "2,476", "$2,476"},
                {22157, "22,160", "$22,160"},
                {66468, "66,470", "$66,470"},
                {999949, "999,900", "$999,900"},
                {999960, "1 million", "$1 million"},
                {3537000, "3.54 million", "$3.54 million"},
                {25.84e6, "25.8 million", "$25.8 million"},
                {999.6e6, "1 billion", "$1 billion"},
                {1.4e12, "1.4 trillion", "$1.4 trillion"},
                {4.3219e15, "4,322 trillion", "$4,322 trillion"},
                {1e30, "1e+30", "$1e+30"}};
    char text[32];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_text(amount_text(rows[i].value, text), rows[i].amount);
        expect_text(dollars_text(rows[i].value, text), rows[i].dollars);
    }
    expect_text(grouped_text(0, text), "0");
    expect_text(grouped_text(999, text), "999");
    expect_text(grouped_text(8030261248, text), "8,030,261,248");
    expect_text(grouped_text(UINT64_MAX, text), "18,446,744,073,709,551,615");
}

static void what_a_terminal_would_obey_is_shown(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"plain text, ~", "plain text, ~"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xc2\xa0\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa",
         "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xc2\xa0\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa"},
        {"a\nb\tc\rd", "a\\nb\\tc\\u000dd"},
        {"\x1b]0;title\x07", "\\u001b]0;title\\u0007"},
        {"\x7f", "\\u007f"},
        {"\xc2\x80\xc2\x9b\xc2\x9f", "\\u0080\\u009b\\u009f"},
        {"\x9b\x80\xff", "\\x9b\\x80\\xff"},
        {"\xe2\x80\xa8\xe2\x80\xaa\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9", "\\u2028\\u202a\\u202e\\u2066\\u2069"},
        {"\xc0\x9b\xe0\x82\x9b\xed\xa0\x80", "\\xc0\\x9b\\xe0\\x82\\x9b\\xed\\xa0\\x80"},
        {"cut \xe2\x82", "cut \\xe2\\x82"},
        {"back\\slash", "back\\slash"},
    };
    char shown[256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_text(text_show(shown, sizeof shown, rows[i][0]), rows[i][1]);
    expect_true(text_is_name("\xc3\xa4") && !text_is_name("\xe2\x80\xae") && !text_is_name("\xc2\x9b"));
}

static void shown_text_is_cut_between_characters(void **state) {
    (void)state;
    char shown[12];
    expect_text(text_show(shown, sizeof shown, "12345678"), "12345678"); /* always with room for the dots */
    expect_text(text_show(shown, sizeof shown, "123456789012"), "12345678...");
    expect_text(text_show(shown, sizeof shown, "12345\x1b[0m"), "12345...");
    expect_text(text_show(shown, sizeof shown,
                          "1234567\xe2\x82\xac"
                          "89"),
                "1234567...");
    char buffer[] = "12\xe2\x82";
    text_trim(buffer, sizeof buffer);
    expect_text(buffer, "12");
    char whole[] = "12\xe2\x82\xac", early[8] = "12\xe2\x82";
    text_trim(whole, sizeof whole);
    expect_text(whole, "12\xe2\x82\xac");
    text_trim(early, sizeof early); /* not cut: it was so */
    expect_text(early, "12\xe2\x82");
}

static char logged[600];
static void log_keep(const char *line, void *context) {
    (void)context;
    text_copy(logged, sizeof logged, line);
}

static void messages_are_printable(void **state) {
    (void)state;
    error_set(TL_ERROR_USE, "no file %s", "\x1b]0;x\x07\xff\n\xe2\x80\xae");
    expect_text(tl_error_message(), "no file \\u001b]0;x\\u0007\\xff\\n\\u202e");
    tl_error_clear();
    char longest[4000];
    for (size_t i = 0; i + 3 < sizeof longest; i += 3) memcpy(longest + i, "\xe2\x82\xac", 4);
    for (int shift = 0; shift < 3; shift++) { /* wherever it is cut */
        error_set(TL_ERROR_USE, "%.*s%s", shift, "abc", longest);
        expect_true(text_is_name(tl_error_message()) && !strchr(tl_error_message(), '\\'));
        tl_error_clear();
    }
    tl_set_log_hook(log_keep, NULL);
    log_line("a name: %s", "\x1b[31m");
    tl_set_log_hook(NULL, NULL);
    expect_text(logged, "a name: \\u001b[31m");
}

static void numbers_come_back_as_they_went(void **state) {
    (void)state;
    static const double values[] = {0.1, -1.5e-300, 1e22, 3.0, 5e-324};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[40], *end;
        expect_true(number_print(text, sizeof text, "%.17g", values[i]) < (int)sizeof text);
        expect_true(number_parse(text, &end) == values[i] && !*end);
    }
}

/* ---- JSON ---- */

/* Bytes that jansson allocates, as glibc rounds them. */
static size_t taken;
static void *count_malloc(size_t bytes) {
    size_t chunk = (bytes + 8 + 15) / 16 * 16;
    taken += chunk < 32 ? 32 : chunk;
    return malloc(bytes);
}
static void count_free(void *p) { free(p); }

static char *repeated(const char *begin, const char *item, size_t n, const char *end) {
    char *text = malloc(strlen(begin) + n * (strlen(item) + 1) + strlen(end) + 1), *at = text;
    at += sprintf(at, "%s", begin);
    for (size_t i = 0; i < n; i++) at += sprintf(at, "%s%s", i ? "," : "", item);
    strcpy(at, end);
    return text;
}

static void expect_bounded(char *text) {
    taken = 0;
    json_t *root = json_parse(text, NULL);
    expect_true(root != NULL);
    size_t said = json_tree_bytes(text, strlen(text));
    if (taken > said) fail_msg("%.40s: took %zu bytes, %zu were said", text, taken, said);
    json_decref(root);
    free(text);
}

/* Tables that grow are taken twice while they do: `taken` counts both, and so is on the safe side. */
static void the_memory_of_a_tree_is_known_before(void **state) {
    (void)state;
    static const char *const items[] = {"{}",
                                        "[]",
                                        "1",
                                        "1.5",
                                        "null",
                                        "\"\"",
                                        "\"some text or other\"",
                                        "{\"\":[]}",
                                        "[[[[[[1]]]]]]",
                                        "{\"a\":1,\"b\":2,\"c\":3}",
                                        "[1,2,3,{}]",
                                        "\"\\\"{{{,,,\""};
    json_set_alloc_funcs(count_malloc, count_free);
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) expect_bounded(repeated("[", items[i], 20000, "]"));
    char *keys = malloc(20000 * 16 + 3), *at = keys + sprintf(keys, "{");
    for (int i = 0; i < 20000; i++) at += sprintf(at, "%s\"%x\":%d", i ? "," : "", (unsigned)i, i);
    strcpy(at, "}");
    expect_bounded(keys);
    json_set_alloc_funcs(malloc, free);
}

static void a_tree_too_large_is_refused_before_it_is_made(void **state) {
    (void)state;
    char *text = repeated("{\"rows\":[", "{}", 2000000, "]}"), *report; /* 6 MB, for which jansson would take 460 */
    char path[] = "/tmp/tally-text-XXXXXX";
    json_set_alloc_funcs(count_malloc, count_free);
    taken = 0;
    expect_equal(tl_ledger_diff(text, text, &report), -1);
    expect_error(TL_ERROR_USE, "the price has too many values: they would take more than 512 MiB of memory");
    int fd = mkstemp(path);
    expect_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
    expect_true(json_read(path, JSON_MOST_LEDGER) == NULL);
    expect_error(TL_ERROR_USE, ": too many values: they would take more than 512 MiB of memory");
    expect_true(json_read(path, 1000) == NULL);
    expect_error(TL_ERROR_USE, "has 6000010 bytes (at most 1000 are allowed)");
    expect_equal(taken, 0);
    json_set_alloc_funcs(malloc, free);
    unlink(path);
    free(text);
}

/* ---- Files ---- */

static int memory_is_full(const char *operation, const char *path) {
    (void)path;
    return strcmp(operation, "map") ? 0 : ENOMEM;
}

static void a_file_that_cannot_be_mapped_for_want_of_memory_says_so(void **state) {
    (void)state;
    char path[] = "/tmp/tally-text-XXXXXX";
    int fd = mkstemp(path);
    size_t bytes;
    expect_true(fd >= 0 && write(fd, "some text", 9) == 9 && close(fd) == 0);
    file_fault = memory_is_full;
    fd = file_open(path, &bytes);
    expect_true(fd >= 0 && file_map_new(fd, path, bytes) == NULL);
    file_fault = NULL;
    expect_error(TL_ERROR_MEMORY, "cannot be mapped: Cannot allocate memory");
    file_close(fd);
    unlink(path);
}

static int half_at_a_time(const char *operation, const char *path) {
    (void)path;
    return strcmp(operation, "read") ? 0 : FILE_SHORT;
}

static void a_stream_is_read_up_to_its_limit(void **state) {
    (void)state;
    int ends[2];
    size_t bytes = 0;
    for (int round = 0; round < 2; round++) {
        expect_true(pipe(ends) == 0 && write(ends[1], "0123456789", 10) == 10 && close(ends[1]) == 0);
        file_fault = half_at_a_time;
        char *text = file_get_stream(ends[0], "a pipe", round ? 9 : 10, &bytes);
        file_fault = NULL;
        close(ends[0]);
        if (round) {
            expect_true(text == NULL);
            expect_error(TL_ERROR_USE, "a pipe: has more than 9 bytes");
        } else {
            expect_equal(bytes, 10);
            expect_text(text, "0123456789");
        }
        memory_free(text);
    }
    expect_true(file_get_stream(-1, "a pipe", 9, &bytes) == NULL);
    expect_error(TL_ERROR_IO, "a pipe: cannot be read: Bad file descriptor");
    tl_fail_allocation(1, false);
    expect_true(file_get_stream(0, "a pipe", 9, &bytes) == NULL);
    tl_fail_allocation(0, false);
    expect_error(TL_ERROR_MEMORY, "bytes asked for a file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(numbers_are_written_as_people_write_them),
        TEST(numbers_have_no_more_digits_than_they_need),
        TEST(what_a_terminal_would_obey_is_shown),
        TEST(shown_text_is_cut_between_characters),
        TEST(messages_are_printable),
        TEST(numbers_come_back_as_they_went),
        TEST(the_memory_of_a_tree_is_known_before),
        TEST(a_tree_too_large_is_refused_before_it_is_made),
        TEST(a_file_that_cannot_be_mapped_for_want_of_memory_says_so),
        TEST(a_stream_is_read_up_to_its_limit),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
