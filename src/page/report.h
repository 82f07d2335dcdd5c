/* report.h: the data of a report: what the folders of runs have, small enough for a page (series.h). */
#ifndef PAGE_REPORT_H
#define PAGE_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Schema tally.report/1: {"schema", "version", "runs": [...]}. NULL: recorded. */
json_t *report_data(const char *const *folders, int n);
/* The page itself, memory_free it; is_live: it asks its server for news. NULL: recorded. */
char *report_html(const json_t *data, bool is_live);
/* What changes while a run runs, in a number that differs when there is news: sizes and times of its files. */
uint64_t report_stamp(const char *folder);

#endif
