#include "plan/network.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static const struct network rows[] = {
#include "plan/network_list.h"
};
enum { N_ROWS = sizeof rows / sizeof *rows, N_OWN = 32, TEXT_BYTES = 128 };

/* Of the user's files, the newest first; each has copies of its texts. */
static struct own {
    struct network net;
    char name[TEXT_BYTES], chips[TEXT_BYTES], source[TEXT_BYTES];
} owned[N_OWN];
static int n_owned;

void network_unload(void) { n_owned = 0; }

const struct network *network_at(int index) {
    if (index < 0) return NULL;
    if (index < n_owned) return &owned[n_owned - 1 - index].net;
    return index - n_owned < N_ROWS ? &rows[index - n_owned] : NULL;
}

/* ---- Names ---- */

/* Small letters and digits alone. */
static const char *plain(char to[TEXT_BYTES], const char *name, size_t length) {
    int n = 0;
    for (size_t i = 0; i < length && n < TEXT_BYTES - 1; i++)
        if (text_is_letter(name[i]) || text_is_digit(name[i])) to[n++] = text_lower(name[i]);
    to[n] = 0;
    return to;
}

static bool list_has(const char *list, const char *name) {
    char wanted[TEXT_BYTES], one[TEXT_BYTES];
    plain(wanted, name, strlen(name));
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ",");
        if (!strcmp(plain(one, at, length), wanted)) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

const struct network *network_find(const char *name) {
    const struct network *net;
    const char *names[N_ROWS + N_OWN];
    char shown[64], meant[TEXT_MEANT];
    int n = 0;
    for (; (net = network_at(n)); n++) {
        names[n] = net->name;
        if (*name && (list_has(net->name, name) || list_has(net->aliases, name))) return net;
    }
    error_set(TL_ERROR_USE, "there is no network \"%s\"%s (`tally devices` lists them; or give --link and --network)",
              text_show(shown, sizeof shown, name), text_meant(meant, text_nearest(name, names, n)));
    return NULL;
}

struct network network_of(const struct hardware *chip) {
    const struct network *net;
    for (int i = 0; chip && (net = network_at(i)); i++)
        if (list_has(net->chips, chip->name)) return *net;
    struct network none = {.name = "assumed", .node = 8, .nics = 8, NETWORK_DELAYS};
    none.link = chip ? hardware_value(chip, HARDWARE_LINK) / 2 : 0;
    none.nic = fmin(none.link, NETWORK_ASSUMED);
    none.is_assumed = none.link > 0;
    return none;
}

double network_share(const struct network *net) { return net->node > 0 ? net->nics * net->nic / (double)net->node : 0; }

void network_override(struct network *net, double link, double between, int64_t node) {
    if (node > 0) {
        net->nics = net->node > 0 ? net->nics * (double)node / (double)net->node : (double)node;
        net->node = node;
    }
    if (link > 0) net->link = link, net->reduce = net->gather = 0, net->adds = false;
    if (link > 0 && !(between > 0)) between = link;
    if (!(between > 0)) return;
    net->nics = (double)net->node;
    net->nic = between;
    net->nic_reduce = 0;
    net->nic_adds = net->is_assumed = false;
}

/* ---- Collectives ---- */

struct network_group network_group_of(const struct network *net, int64_t stride, int64_t size) {
    struct network_group g = {.size = size, .inside = 1};
    if (stride < net->node) g.inside = (net->node + stride - 1) / stride;
    if (g.inside > size) g.inside = size;
    while (size % g.inside) g.inside--; /* as many in every node */
    g.nodes = size / g.inside;
    return g;
}

/* The slowest link of a ring: inside a node, or what a node's members of the group have of its cards together. */
static double ring_speed(const struct network *net, const struct network_group *g, enum network_op op) {
    double measured = op == NETWORK_ALL_REDUCE ? net->reduce : net->gather > 0 ? net->gather : net->reduce;
    double inside = measured > 0 ? measured : NETWORK_SHARE * net->link;
    double nic = net->nic_reduce > 0 ? net->nic_reduce / net->nic : NETWORK_SHARE;
    double between = nic * network_share(net) * (double)g->inside;
    if (g->nodes == 1) return inside;
    return g->inside == 1 ? between : fmin(inside, between);
}

static double expected_of(const struct network *net, const struct network_group *g, enum network_op op, double sent,
                          double bytes) {
    double delay = g->nodes > 1 ? net->nic_delay * log2((double)g->nodes) : net->delay, speed = ring_speed(net, g, op);
    return speed > 0 && bytes > 0 ? sent / speed + sent / bytes * delay : 0;
}

/* A message to the next device of the group: across a node's border only if the group has one member in each. */
static struct network_cost send_cost(const struct network *net, const struct network_group *g, double bytes) {
    struct network_cost c = {0};
    if (g->size < 2) return c;
    bool is_inside = g->nodes == 1;
    double speed = is_inside ? net->link : network_share(net);
    *(is_inside ? &c.inside_bytes : &c.between_bytes) = bytes;
    if (!(speed > 0)) return c;
    *(is_inside ? &c.inside_s : &c.between_s) = bytes / speed;
    c.expected_s = bytes / (NETWORK_SHARE * speed);
    return c;
}

struct network_cost network_cost(const struct network *net, enum network_algorithm algorithm,
                                 const struct network_group *g, enum network_op op, double bytes, double calls) {
    double n = (double)g->size, a = (double)g->inside, k = (double)g->nodes, c = op == NETWORK_ALL_REDUCE ? 2 : 1;
    struct network_cost cost = {0};
    if (op == NETWORK_SEND) cost = send_cost(net, g, bytes);
    else if (g->size > 1) {
        bool is_ring = algorithm == NETWORK_RING, may_add = op == NETWORK_ALL_REDUCE;
        double inside = c * (a - 1) / a * bytes, between = c * (k - 1) / k / a * bytes, share = network_share(net);
        cost.inside_bytes = is_ring ? inside : c * (a - 1) / n * bytes;
        cost.between_bytes = is_ring ? between : c * (n - a) / n * bytes;
        if (may_add && net->adds) inside = fmin(inside, bytes);
        if (may_add && net->nic_adds) between = fmin(between, bytes / a);
        if (net->link > 0) cost.inside_s = fmin(inside, cost.inside_bytes) / net->link;
        if (share > 0) cost.between_s = fmin(between, cost.between_bytes) / share;
        cost.expected_s = expected_of(net, g, op, c * (n - 1) / n * bytes, bytes);
        if (!is_ring && k > 1 && share > 0)
            cost.expected_s = fmax(cost.expected_s, cost.between_bytes / (NETWORK_SHARE * share));
    }
    double *const all[] = {&cost.inside_bytes, &cost.between_bytes, &cost.inside_s, &cost.between_s, &cost.expected_s};
    for (int i = 0; i < 5; i++) *all[i] *= calls;
    return cost;
}

void network_cost_add(struct network_cost *sum, const struct network_cost *c) {
    sum->inside_bytes += c->inside_bytes;
    sum->between_bytes += c->between_bytes;
    sum->inside_s += c->inside_s;
    sum->between_s += c->between_s;
    sum->expected_s += c->expected_s;
}

/* ---- Files of the user's, and as JSON ---- */

static const struct figure {
    const char *key;
    size_t at;
} figures[] = {
    {"link", offsetof(struct network, link)},
    {"reduce", offsetof(struct network, reduce)},
    {"gather", offsetof(struct network, gather)},
    {"delay", offsetof(struct network, delay)},
    {"nics", offsetof(struct network, nics)},
    {"nic", offsetof(struct network, nic)},
    {"nic_reduce", offsetof(struct network, nic_reduce)},
    {"nic_delay", offsetof(struct network, nic_delay)},
};
enum { N_FIGURES = sizeof figures / sizeof *figures };
static double *figure_of(struct network *net, int i) { return (double *)((char *)net + figures[i].at); }

static bool text_take(char to[TEXT_BYTES], const json_t *v, const char *key, const char *path) {
    const char *text = json_string_value(v);
    if (!text || !*text || strlen(text) >= TEXT_BYTES || !text_is_name(text))
        return error_set(TL_ERROR_USE, "%s: \"%s\" of a network is not a text of 1 to %d characters", path, key,
                         TEXT_BYTES - 1);
    memcpy(to, text, strlen(text) + 1);
    return true;
}

static bool key_take(struct own *o, const char *key, const json_t *v, const char *path) {
    const char *known[N_FIGURES + 8] = {"name", "chips", "source", "note", "aliases", "node", "adds", "nic_adds"};
    if (!strcmp(key, "name")) return text_take(o->name, v, key, path);
    if (!strcmp(key, "chips")) return text_take(o->chips, v, key, path);
    if (!strcmp(key, "source")) return text_take(o->source, v, key, path);
    if (!strcmp(key, "note") || !strcmp(key, "aliases")) return true; /* of Tally's own table */
    if (!strcmp(key, "adds") || !strcmp(key, "nic_adds")) {
        if (!json_is_boolean(v)) return error_set(TL_ERROR_USE, "%s: \"%s\" is not true or false", path, key);
        *(key[0] == 'a' ? &o->net.adds : &o->net.nic_adds) = json_is_true(v);
        return true;
    }
    double number = json_number_value(v);
    if (!strcmp(key, "node")) {
        o->net.node = json_integer_value(v);
        return (json_is_integer(v) && o->net.node > 0 && o->net.node <= 1 << 24) ||
               error_set(TL_ERROR_USE, "%s: \"node\" is not a number of devices from 1 to 2^24", path);
    }
    for (int i = 0; i < N_FIGURES; i++) {
        known[8 + i] = figures[i].key;
        if (strcmp(key, figures[i].key)) continue;
        *figure_of(&o->net, i) = number;
        return (json_is_number(v) && number > 0 && number < 1e24) ||
               error_set(TL_ERROR_USE, "%s: \"%s\" of a network is not a positive number below 1e24", path, key);
    }
    char shown[64], meant[TEXT_MEANT];
    return error_set(TL_ERROR_USE, "%s: a network has no key \"%s\"%s", path, text_show(shown, sizeof shown, key),
                     text_meant(meant, text_nearest(key, known, N_FIGURES + 8)));
}

static bool network_take(struct own *o, const json_t *object, const char *path) {
    const char *key;
    json_t *v;
    *o = (struct own){.net = {.node = 8, .nics = 8, NETWORK_DELAYS, .is_own = true}};
    if (!json_is_object(object)) return error_set(TL_ERROR_USE, "%s: a network is a JSON object", path);
    json_object_foreach((json_t *)(uintptr_t)object, key, v) if (!key_take(o, key, v, path)) return false;
    if (!*o->name) return error_set(TL_ERROR_USE, "%s: a network needs a \"name\"", path);
    if (!(o->net.link > 0) && !(o->net.nic > 0))
        return error_set(TL_ERROR_USE, "%s: the network %s needs a \"link\" or a \"nic\", in B/s one way", path,
                         o->name);
    return true;
}

bool network_load(const json_t *networks, const char *path) {
    int before = n_owned;
    size_t i;
    json_t *object;
    if (!networks) return true;
    bool ok = json_is_array(networks) || error_set(TL_ERROR_USE, "%s: \"networks\" is not a list", path);
    json_array_foreach((json_t *)(uintptr_t)networks, i, object) {
        if (!ok) break;
        if (n_owned == N_OWN) ok = error_set(TL_ERROR_USE, "%s: more than %d networks", path, N_OWN);
        ok = ok && network_take(&owned[n_owned], object, path);
        if (!ok) break;
        struct own *o = &owned[n_owned++];
        o->net.name = o->name;
        o->net.chips = *o->chips ? o->chips : NULL;
        o->net.source = *o->source ? o->source : NULL;
    }
    if (!ok) n_owned = before;
    return ok;
}

json_t *network_json(const struct network *net) {
    struct network copy = *net;
    json_t *json = json_pack("{s:s, s:s*, s:s*, s:s*, s:s*, s:I, s:b, s:b}", "name", net->name, "aliases", net->aliases,
                             "chips", net->chips, "source", net->source, "note", net->note, "node",
                             (json_int_t)net->node, "adds", (int)net->adds, "nic_adds", (int)net->nic_adds);
    for (int i = 0; json && i < N_FIGURES; i++)
        if (*figure_of(&copy, i) > 0) json_object_set_new(json, figures[i].key, json_real(*figure_of(&copy, i)));
    return json;
}
