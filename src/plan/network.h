/* network.h: how fast devices exchange data: inside a node, and between nodes through its network cards.
 *
 * A group of n devices has `a` in each of k nodes (n = a k). A collective over a tensor of S bytes, whose algorithm
 * sends c (n - 1) / n S (c is 2 for an all-reduce, 1 for the others), is cut at the nodes' borders:
 *
 *                inside a node                 through one device's share of the network cards
 *     ring       c (a - 1) / a S               c (k - 1) / k S / a       what a hierarchical ring sends, the least
 *     pairwise   c (a - 1) / n S               c (n - a) / n S           every pair of devices exchanges its parts
 *
 * Devices of one node that are in other groups send at the same time, so each has its share of the cards.
 *
 *   bound      the least of these bytes at the speed of the wires, both tiers at once. If the switches can add, an
 *              all-reduce needs each byte once. No collective is faster.
 *   expected   c (n - 1) / n (S / measured bus bandwidth + delay): a ring is as slow as its slowest link, and takes a
 *              while even with nothing to send (`delay`: network_list.h). Half of the bandwidth is thus reached with
 *              delay x bandwidth bytes, more of them on a faster network.
 */
#ifndef PLAN_NETWORK_H
#define PLAN_NETWORK_H

#include <jansson.h>

#include "plan/hardware.h"

struct network {
    const char *name, *aliases, *chips; /* chips whose usual network it is; lists are divided by commas */
    const char *source, *note;
    int64_t node;                       /* devices in a node */
    double link, reduce, gather, delay; /* inside: of one device; `reduce`, `gather`, `delay` are measured */
    double nics, nic, nic_reduce, nic_delay;
    bool adds, nic_adds; /* the switches can add */
    bool is_assumed;     /* the speed between nodes is not known, and NETWORK_ASSUMED stands in */
    bool is_own;         /* from a file of the user's */
};

/* Between nodes of a chip without a row: one port of 400 Gb/s per device. */
#define NETWORK_ASSUMED 50e9
/* Of every network, since they were measured on few (network_list.h). */
#define NETWORK_DELAYS .delay = 45e-6, .nic_delay = 270e-6
/* The share of a wire's speed that a collective of large tensors reaches where nothing was measured. */
#define NETWORK_SHARE 0.8

/* The rows, those from files first; NULL after the last. Valid until hardware_unload. */
const struct network *network_at(int index);
/* By name or alias; NULL: recorded, with a suggestion. */
const struct network *network_find(const char *name);
/* The usual one of a chip (NULL: none is known). If it has no row: nodes of 8, the chip's own link, NETWORK_ASSUMED
 * between them. A link of 0 is not known. */
struct network network_of(const struct hardware *chip);
/* Speeds given by the user, B/s of one device: one for everything, or one for inside and one for between nodes; and
 * the devices of a node. 0: as they are. */
void network_override(struct network *net, double link, double between, int64_t node);
/* B/s of one device's share of its node's network cards. */
double network_share(const struct network *net);

/* The "networks" of a tally.hardware/1. False: recorded, and nothing was added. */
bool network_load(const json_t *networks, const char *path);
void network_unload(void);
json_t *network_json(const struct network *net);

/* ---- Collectives ---- */

enum network_algorithm { NETWORK_RING, NETWORK_PAIRWISE };
enum network_op { NETWORK_ALL_REDUCE, NETWORK_ALL_GATHER, NETWORK_REDUCE_SCATTER, NETWORK_SEND };

/* `size` devices, `stride` apart in the order of ranks, in which nodes are filled one after another. */
struct network_group {
    int64_t size, inside, nodes; /* inside: of them, in one node */
};
struct network_group network_group_of(const struct network *net, int64_t stride, int64_t size);

struct network_cost {
    double inside_bytes, between_bytes; /* sent by one device */
    double inside_s, between_s;         /* at the speed of the wires */
    double expected_s;
};
/* `calls` collectives over tensors of `bytes` each; a send goes to the next device of the group. */
struct network_cost network_cost(const struct network *net, enum network_algorithm algorithm,
                                 const struct network_group *group, enum network_op op, double bytes, double calls);
void network_cost_add(struct network_cost *sum, const struct network_cost *cost);

#endif
