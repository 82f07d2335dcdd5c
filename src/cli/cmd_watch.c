/* cmd_watch.c: tally watch RUN...: the page of `tally report`, live.
 *
 * The server is a process of its own, so nothing that a browser does reaches the run: it only reads the run's files. It
 * listens on 127.0.0.1 unless told otherwise, and answers two addresses, the page and its data, to GET alone and only
 * with the token of its URL. The Host header must be its own address, so that no other site can reach it through a name
 * that resolves to 127.0.0.1. It spends at most one part in 200 of a core on making data. libmicrohttpd speaks HTTP. */
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/watch_child.h"

const char help_watch[] =
    "usage: tally watch RUN... [--port N] [--address A]\n"
    "\n"
    "Serves the page of `tally report` for these runs, which draws itself again while they train. It prints the\n"
    "address, which has a secret token, and runs until Ctrl-C; the runs themselves are only read and do not notice.\n"
    "Start it before, during or after a run: the page stays when the run ends.\n"
    "\n"
    "examples:\n"
    "  tally watch runs/first\n"
    "  tally watch runs/a runs/b --port 8000\n"
    "  ssh -L 8000:127.0.0.1:8000 machine           then open the address here\n"
    "\n"
    "  --port N          where to listen (default: a free port)\n"
    "  --until-eof       end when standard input ends: for programs that start it, as `tally train --watch` does\n"
    "  --address A       the IPv4 address to listen on (default 127.0.0.1: this machine alone). Anyone who can reach\n"
    "                    another address and has the token can read the runs: there is no encryption\n";

#if TALLY_MICROHTTPD
#include <arpa/inet.h>
#include <microhttpd.h>
#include <poll.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/interrupt.h"
#include "page/report.h"

enum { MOST_RUNS = 64, TOKEN_BYTES = 16, MOST_CONNECTIONS = 900, PATIENCE_S = 10, SHARE = 200 };

/* Only the server's one thread uses it after the start. */
struct watch {
    const char *runs[MOST_RUNS], *address;
    int n_runs;
    char token[2 * TOKEN_BYTES + 1], host[2][64]; /* host: what a Host header may say */
    double built_at_s, build_s;                   /* when the data was last made, and how long it took */
};

static uint64_t stamp_of(const struct watch *w) {
    uint64_t stamp = 0;
    for (int i = 0; i < w->n_runs; i++) stamp = stamp * 31 + report_stamp(w->runs[i]);
    return stamp;
}

/* Seconds of a core that this thread has used: on a busy machine the clock would say more. */
static double worked_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* NULL: recorded. */
static json_t *data_now(struct watch *w) {
    char stamp[32];
    double before = worked_s();
    snprintf(stamp, sizeof stamp, "%016llx", (unsigned long long)stamp_of(w));
    json_t *data = report_data(w->runs, w->n_runs);
    if (data) json_object_set_new(data, "stamp", json_string(stamp));
    w->built_at_s = now_s();
    w->build_s = worked_s() - before;
    return data;
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type, char *text) {
    static const char *const headers[][2] = {{"Cache-Control", "no-store"},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"X-Frame-Options", "DENY"},
                                             {"Referrer-Policy", "no-referrer"},
                                             {"Cross-Origin-Resource-Policy", "same-origin"}};
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(text), text, *type ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        MHD_add_response_header(r, headers[i][0], headers[i][1]);
    MHD_add_response_header(r, "Content-Type", *type ? type : "text/plain");
    enum MHD_Result result = MHD_queue_response(connection, status, r);
    MHD_destroy_response(r);
    return result;
}

/* As long for a wrong token as for the right one. */
static bool is_token(const struct watch *w, const char *given) {
    size_t n = sizeof w->token - 1;
    unsigned difference = 0;
    if (!given || strlen(given) != n) return false;
    for (size_t i = 0; i < n; i++) difference |= (unsigned)(w->token[i] ^ given[i]);
    return !difference;
}

static enum MHD_Result page_answer(struct watch *w, struct MHD_Connection *connection, bool is_page) {
    const char *after = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "after");
    char stamp[32], empty[] = "";
    snprintf(stamp, sizeof stamp, "%016llx", (unsigned long long)stamp_of(w));
    bool is_early = now_s() - w->built_at_s < SHARE * w->build_s;
    if (!is_page && after && (!strcmp(after, stamp) || is_early)) return answer(connection, 204, "", empty);
    json_t *data = data_now(w);
    char *text = !data     ? NULL
                 : is_page ? report_html(data, true)
                           : json_print(data, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(data);
    tl_error_clear();
    if (!text) return answer(connection, 503, "", (char *)"the run's folder cannot be read now\n");
    return answer(connection, 200, is_page ? "text/html; charset=utf-8" : "application/json", text);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **state) {
    struct watch *w = context;
    (void)version, (void)upload, (void)upload_bytes, (void)state;
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    const char *token = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token");
    bool is_page = !strcmp(url, "/"), is_data = !strcmp(url, "/data");
    tl_set_error_policy(TL_RETURN);
    if (strcmp(method, "GET")) return answer(connection, 405, "", (char *)"only GET is answered\n");
    if (!host || (strcmp(host, w->host[0]) && strcmp(host, w->host[1])) || !is_token(w, token))
        return answer(connection, 403, "", (char *)"open the address that `tally watch` printed\n");
    if (!is_page && !is_data) return answer(connection, 404, "", (char *)"there is nothing here\n");
    return page_answer(w, connection, is_page);
}

static void log_nothing(void *context, const char *format, va_list arguments) {
    (void)context, (void)format, (void)arguments; /* what clients do wrong is theirs */
}

static bool token_make(struct watch *w) {
    unsigned char random[TOKEN_BYTES];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return error_set(TL_ERROR_SYSTEM, "the system gives no random bytes for a token");
    for (int i = 0; i < TOKEN_BYTES; i++) snprintf(w->token + 2 * i, 3, "%02x", random[i]);
    return true;
}

/* NULL: recorded. */
static struct MHD_Daemon *server_start(struct watch *w, int64_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, w->address, &at.sin_addr) != 1)
        return error_set(TL_ERROR_USE, "--address %s: is no IPv4 address such as 127.0.0.1", w->address), NULL;
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, w,
                         MHD_OPTION_EXTERNAL_LOGGER, log_nothing, NULL, MHD_OPTION_SOCK_ADDR, &at,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)PATIENCE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = d ? MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    if (!d)
        return error_set(TL_ERROR_SYSTEM, "cannot listen on %s port %lld: is it in use? (give another --port)",
                         w->address, (long long)port),
               NULL;
    snprintf(w->host[0], sizeof w->host[0], "%s:%u", w->address, info ? info->port : (unsigned)port);
    snprintf(w->host[1], sizeof w->host[1], "localhost:%u", info ? info->port : (unsigned)port);
    return d;
}

/* A second, or until a signal. */
static bool input_has_ended(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char some[256];
    return poll(&input, 1, 1000) > 0 && read(STDIN_FILENO, some, sizeof some) == 0;
}

static int serve(struct watch *w, int64_t port, bool until_eof) {
    json_t *first = data_now(w); /* what is no run is said here */
    json_decref(first);
    struct MHD_Daemon *server = first && token_make(w) ? server_start(w, port) : NULL;
    if (!server) return cli_error_of("watch");
    w->built_at_s = 0;
    interrupt_catch_all();
    printf("http://%s/?token=%s\n", w->host[0], w->token);
    fflush(stdout);
    if (!until_eof) fprintf(stderr, "Open this address in a browser. Ctrl-C ends the page, not the run.\n");
    if (until_eof)
        while (!is_interrupted && !input_has_ended()) continue;
    else
        while (!is_interrupted) sleep(1); /* which a signal ends */
    MHD_stop_daemon(server);
    return 0;
}
#endif

bool watch_is_possible(const char *command) {
#if TALLY_MICROHTTPD
    (void)command;
    return true;
#else
    fprintf(stderr,
            "tally %s: this build has no HTTP server: install libmicrohttpd-dev and run make again. `tally report` "
            "draws the same page as a file\n",
            command);
    return false;
#endif
}

int cmd_watch(int argc, char **argv) {
#if TALLY_MICROHTTPD
    struct watch w = {.address = "127.0.0.1"};
    int64_t port = 0;
    bool until_eof = false;
    const struct option table[] = {{"--port", OPTION_INTEGER, &port, 0, 65535, false},
                                   {"--address", OPTION_TEXT, &w.address, 0, 0, false},
                                   {"--until-eof", OPTION_FLAG, &until_eof, 0, 0, false},
                                   {0}};
    int code = options_read("watch", table, argc, argv, w.runs, MOST_RUNS);
    if (code) return code;
    while (w.n_runs < MOST_RUNS && w.runs[w.n_runs]) w.n_runs++;
    if (w.n_runs) return serve(&w, port, until_eof);
    fprintf(stderr, "tally watch: name the folder of a run: tally watch runs/first (`tally watch --help`)\n");
    return EXIT_USAGE;
#else
    (void)argc, (void)argv;
    return watch_is_possible("watch") ? 0 : EXIT_IO;
#endif
}
