/* runs.h: small training runs in a temporary folder, for the tests of training and planning. */
#ifndef TESTS_SUPPORT_RUNS_H
#define TESTS_SUPPORT_RUNS_H

#include "tally.h"
#include "train/run.h"
#include "step/settings.h"

extern char base[64]; /* the folder, between base_begin and base_end; all ranks of a launch have the same */
void base_begin(void);
void base_remove(const char *name); /* something in it, once all ranks are here */
void base_end(void);
int base_ranks(void);

void set(struct settings *s, const char *name, const char *value);
void set_path(struct settings *s, const char *name, const char *file); /* below the folder */

/* Where runs are made: cpu, or what TALLY_TEST_DEVICE says. */
const char *run_device(void);

/* A model of 2 layers and 16 channels, and a text of n_bytes bytes. */
struct settings small_run(tl_family family, int64_t n_bytes);

/* run_train, stopped after stop_after steps; 0: never. The summary's text is freed. */
enum run_end run_until(const struct settings *s, int64_t stop_after, struct run_summary *summary);
/* The same; a run that fails also fails the test. */
enum run_end train_until(const struct settings *s, int64_t stop_after, struct run_summary *summary);

/* Configuration number i of a walk through families, recipes, policies, optimizers, sizes and cadences: 5 steps. */
struct settings configuration(int i);

#endif
