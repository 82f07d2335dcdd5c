/* sheet.h: figures in sections of rows and columns, written in one of several forms.
 *
 * A command fills in one sheet; text, Markdown, CSV and JSON all come from it, so none of them can differ from the
 * others. Text and Markdown show figures as people write them, and leave out what is detail unless it is asked for;
 * CSV and JSON have every figure, to the last digit. A row with a single cell is a plain value in JSON. */
#ifndef CLI_SHEET_H
#define CLI_SHEET_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "spec/cost.h"
#include "tally.h"

enum sheet_unit {
    SHEET_NOTHING, /* an empty cell: not known, or there is no such figure */
    SHEET_TEXT,
    SHEET_NUMBER, /* of things: 8,030,261,248 */
    SHEET_COUNT,  /* FLOPs and the like: 4.560 G */
    SHEET_AMOUNT, /* 22,160; 25.8 million */
    SHEET_RATIO,  /* 295.2 */
    SHEET_BYTES,
    SHEET_SECONDS,
    SHEET_DAYS,
    SHEET_DOLLARS,
    SHEET_SHARE, /* 0.5, shown as 50.0 % */
};
enum sheet_place {
    SHEET_BRIEF,
    SHEET_DETAIL, /* in text and Markdown only if everything is asked for */
    SHEET_SAID,   /* in CSV and JSON only: a line of text says it */
};
enum { SHEET_COLUMNS = 8, SHEET_CELL_TEXT = 96, SHEET_LINE_TEXT = 400 };

struct sheet_cell {
    enum sheet_unit unit;
    count whole; /* of numbers, counts and bytes */
    double real; /* of all others */
    char text[SHEET_CELL_TEXT];
};

struct sheet_row;
struct sheet_section {
    const char *name, *title; /* in CSV and JSON; above the rows: NULL if there is none */
    const char *columns[SHEET_COLUMNS];
    int n_columns;
    enum sheet_place place;
    struct sheet_row *rows;
    int n_rows, room;
};
struct sheet {
    struct sheet_section *sections;
    int n, room;
    bool is_broken; /* there was no memory: recorded */
};

/* A section, and what is added from here on: `columns` are names divided by blanks, an underscore is a blank in text.
 */
void sheet_section(struct sheet *s, const char *name, const char *title, enum sheet_place place, const char *columns);
void sheet_line(struct sheet *s, enum sheet_place place, const char *format, ...) TL_PRINTF(3, 4);
/* A row; its cells follow, from the first column on. `label`: in text; NULL: the name. */
void sheet_row(struct sheet *s, enum sheet_place place, const char *name, const char *label);
void sheet_whole(struct sheet *s, enum sheet_unit unit, count value);
void sheet_real(struct sheet *s, enum sheet_unit unit, double value); /* 0 and less: not known */
void sheet_text(struct sheet *s, const char *text);
void sheet_free(struct sheet *s);

void sheet_print(const struct sheet *s, bool is_full);
void sheet_markdown(const struct sheet *s, bool is_full);
void sheet_csv(const struct sheet *s);
/* A section: an object by row, of objects by column. NULL: no memory. */
json_t *sheet_json(const struct sheet *s, const char *section);

#endif
