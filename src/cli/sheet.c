#include "cli/sheet.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

struct sheet_row {
    enum sheet_place place;
    char name[SHEET_CELL_TEXT], label[SHEET_CELL_TEXT];
    char *line; /* of a line of text, which has no cells */
    struct sheet_cell cells[SHEET_COLUMNS];
    int n_cells;
};

/* ---- Filling in ---- */

/* One more of them, zeroed; NULL: no memory, recorded. */
static void *one_more(struct sheet *s, void **items, int *n, int *room, size_t size) {
    if (s->is_broken) return NULL;
    if (*n == *room) {
        const int more = 2 * *room + 8;
        void *larger = memory_resize(*items, (size_t)more * size);
        if (!larger) return s->is_broken = true, error_memory((size_t)more * size, "a table of figures"), NULL;
        *items = larger, *room = more;
    }
    return memset((char *)*items + (size_t)(*n)++ * size, 0, size);
}

void sheet_section(struct sheet *s, const char *name, const char *title, enum sheet_place place, const char *columns) {
    struct sheet_section *section = one_more(s, (void **)&s->sections, &s->n, &s->room, sizeof *section);
    if (!section) return;
    section->name = name, section->title = title, section->place = place;
    for (; *columns && section->n_columns < SHEET_COLUMNS; columns += strspn(columns, " ")) {
        section->columns[section->n_columns++] = columns;
        columns += strcspn(columns, " ");
    }
}

static struct sheet_row *row_add(struct sheet *s, enum sheet_place place) {
    struct sheet_section *t = s->is_broken ? NULL : &s->sections[s->n - 1];
    struct sheet_row *row = t ? one_more(s, (void **)&t->rows, &t->n_rows, &t->room, sizeof *row) : NULL;
    if (row) row->place = t->place > place ? t->place : place;
    return row;
}

void sheet_line(struct sheet *s, enum sheet_place place, const char *format, ...) {
    char text[SHEET_LINE_TEXT];
    va_list arguments;
    va_start(arguments, format);
    number_vprint(text, sizeof text, format, arguments);
    va_end(arguments);
    text_trim(text, sizeof text);
    struct sheet_row *row = row_add(s, place);
    if (!row) return;
    row->line = memory_new(strlen(text) + 1);
    if (row->line) memcpy(row->line, text, strlen(text) + 1);
    else s->is_broken = true, error_memory(strlen(text) + 1, "a table of figures");
}

void sheet_row(struct sheet *s, enum sheet_place place, const char *name, const char *label) {
    struct sheet_row *row = row_add(s, place);
    if (!row) return;
    text_copy(row->name, sizeof row->name, name);
    text_copy(row->label, sizeof row->label, label ? label : name);
}

static void cell_add(struct sheet *s, const struct sheet_cell *cell) {
    struct sheet_section *t = s->is_broken ? NULL : &s->sections[s->n - 1];
    struct sheet_row *row = t && t->n_rows ? &t->rows[t->n_rows - 1] : NULL;
    if (row && row->n_cells < t->n_columns) row->cells[row->n_cells++] = *cell;
}

void sheet_whole(struct sheet *s, enum sheet_unit unit, count value) {
    cell_add(s, &(struct sheet_cell){.unit = unit, .whole = value});
}

void sheet_real(struct sheet *s, enum sheet_unit unit, double value) {
    cell_add(s, &(struct sheet_cell){.unit = value > 0 ? unit : SHEET_NOTHING, .real = value});
}

void sheet_text(struct sheet *s, const char *text) {
    struct sheet_cell cell = {.unit = text && *text ? SHEET_TEXT : SHEET_NOTHING};
    if (text) text_copy(cell.text, sizeof cell.text, text);
    cell_add(s, &cell);
}

void sheet_free(struct sheet *s) {
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < s->sections[i].n_rows; k++) memory_free(s->sections[i].rows[k].line);
        memory_free(s->sections[i].rows);
    }
    memory_free(s->sections);
    *s = (struct sheet){0};
}

/* ---- Figures ---- */

static bool is_whole(enum sheet_unit unit) {
    return unit == SHEET_NUMBER || unit == SHEET_COUNT || unit == SHEET_BYTES;
}

/* As people write it. */
static void cell_show(const struct sheet_cell *c, char text[SHEET_CELL_TEXT]) {
    text[0] = 0;
    switch (c->unit) {
    case SHEET_NOTHING:
        break;
    case SHEET_TEXT:
        text_copy(text, SHEET_CELL_TEXT, c->text);
        break;
    case SHEET_NUMBER:
        grouped_text((uint64_t)c->whole, text);
        break;
    case SHEET_COUNT:
        count_text((double)c->whole, text);
        break;
    case SHEET_BYTES:
        bytes_text((double)c->whole, text);
        break;
    case SHEET_AMOUNT:
        amount_text(c->real, text);
        break;
    case SHEET_RATIO:
        number_print(text, SHEET_CELL_TEXT, "%.1f", c->real);
        break;
    case SHEET_SECONDS:
        duration_text(c->real, text);
        break;
    case SHEET_DAYS:
        duration_text(DAY_S * c->real, text);
        break;
    case SHEET_DOLLARS:
        dollars_text(c->real, text);
        break;
    case SHEET_SHARE:
        number_print(text, SHEET_CELL_TEXT, "%.1f %%", 100 * c->real);
        break;
    }
}

/* To the last digit. */
static void cell_digits(const struct sheet_cell *c, char text[SHEET_CELL_TEXT]) {
    if (c->unit == SHEET_TEXT) text_copy(text, SHEET_CELL_TEXT, c->text);
    else if (is_whole(c->unit)) {
        char digits[40];
        text_copy(text, SHEET_CELL_TEXT, tl_count_text(count_public(c->whole), digits));
    } else number_shortest(text, c->real);
}

static const char *unit_name(enum sheet_unit unit) {
    static const char *const names[] = {
        [SHEET_NOTHING] = "", [SHEET_TEXT] = "text",   [SHEET_NUMBER] = "1",    [SHEET_COUNT] = "1",
        [SHEET_BYTES] = "B",  [SHEET_AMOUNT] = "1",    [SHEET_RATIO] = "1",     [SHEET_SECONDS] = "s",
        [SHEET_DAYS] = "d",   [SHEET_DOLLARS] = "USD", [SHEET_SHARE] = "share",
    };
    return names[unit];
}

static void column_name(const struct sheet_section *t, int i, bool is_shown, char text[SHEET_CELL_TEXT]) {
    number_print(text, SHEET_CELL_TEXT, "%.*s", (int)strcspn(t->columns[i], " "), t->columns[i]);
    for (char *at = text; is_shown && *at; at++)
        if (*at == '_') *at = ' ';
}

/* ---- Text ---- */

static bool is_shown(const struct sheet_row *row, bool is_full) {
    return row->place == SHEET_BRIEF || (is_full && row->place == SHEET_DETAIL);
}

static bool has_shown(const struct sheet_section *t, bool is_full, bool has_cells) {
    for (int i = 0; i < t->n_rows; i++)
        if (is_shown(&t->rows[i], is_full) && (!has_cells || !t->rows[i].line)) return true;
    return false;
}

/* Columns in which every figure is text are read from the left. */
struct widths {
    int label, column[SHEET_COLUMNS];
    bool is_text[SHEET_COLUMNS], is_empty[SHEET_COLUMNS];
};

static int larger(int a, int b) { return a > b ? a : b; }

static struct widths widths_of(const struct sheet_section *t, bool is_full) {
    struct widths w = {.label = larger(20, t->title ? (int)strlen(t->title) - 2 : 0)};
    char text[SHEET_CELL_TEXT];
    for (int c = 0; c < t->n_columns; c++) {
        column_name(t, c, true, text);
        w.column[c] = (int)strlen(text);
        w.is_text[c] = w.is_empty[c] = true;
    }
    for (int i = 0; i < t->n_rows; i++) {
        const struct sheet_row *row = &t->rows[i];
        if (row->line || !is_shown(row, is_full)) continue;
        w.label = larger(w.label, (int)strlen(row->label));
        for (int c = 0; c < row->n_cells; c++) {
            cell_show(&row->cells[c], text);
            w.column[c] = larger(w.column[c], (int)strlen(text));
            w.is_text[c] &= row->cells[c].unit <= SHEET_TEXT;
            w.is_empty[c] &= row->cells[c].unit == SHEET_NOTHING;
        }
    }
    return w;
}

/* Text at the end of a line needs no blanks behind it. */
static void field_print(const struct widths *w, int c, bool is_last, const char *text) {
    if (w->is_empty[c] || (is_last && !*text)) return;
    printf(w->is_text[c] ? "  %-*s" : "  %*s", is_last && w->is_text[c] ? 0 : w->column[c], text);
}

static void head_print(const struct sheet_section *t, const struct widths *w) {
    char text[SHEET_CELL_TEXT];
    printf("%-*s", w->label + 2, t->title ? t->title : "");
    for (int c = 0; c < t->n_columns; c++) {
        column_name(t, c, true, text);
        field_print(w, c, c == t->n_columns - 1, text);
    }
    printf("\n");
}

static void cells_print(const struct sheet_row *row, const struct widths *w) {
    char text[SHEET_CELL_TEXT];
    int n = row->n_cells;
    while (n > 0 && row->cells[n - 1].unit == SHEET_NOTHING) n--;
    printf("  %-*s", w->label, row->label);
    for (int c = 0; c < n; c++) {
        cell_show(&row->cells[c], text);
        field_print(w, c, c == n - 1, text);
    }
    printf("\n");
}

static void section_print(const struct sheet_section *t, bool is_full) {
    const struct widths w = widths_of(t, is_full);
    bool has_head = false, has_cells = has_shown(t, is_full, true);
    if (t->title && !has_cells) printf("%s\n", t->title);
    for (int i = 0; i < t->n_rows; i++) {
        const struct sheet_row *row = &t->rows[i];
        if (!is_shown(row, is_full)) continue;
        if (row->line) {
            printf("%s%s\n", t->title || has_head ? "  " : "", row->line);
            continue;
        }
        if (!has_head) head_print(t, &w);
        has_head = true;
        cells_print(row, &w);
    }
}

void sheet_print(const struct sheet *s, bool is_full) {
    bool is_first = true;
    for (int i = 0; i < s->n; i++) {
        if (!has_shown(&s->sections[i], is_full, false)) continue;
        if (!is_first) printf("\n");
        is_first = false;
        section_print(&s->sections[i], is_full);
    }
}

/* ---- Markdown ---- */

/* What Markdown or HTML would read is escaped. */
static void markdown_text(const char *text) {
    for (; *text; text++) printf(strchr("\\|<>*_`[]", *text) ? "\\%c" : "%c", *text);
}

static void markdown_head(const struct sheet_section *t, const struct widths *w) {
    char text[SHEET_CELL_TEXT];
    printf("\n| |");
    for (int c = 0; c < t->n_columns; c++) {
        column_name(t, c, true, text);
        if (!w->is_empty[c]) printf(" %s |", text);
    }
    printf("\n|---|");
    for (int c = 0; c < t->n_columns; c++)
        if (!w->is_empty[c]) printf(w->is_text[c] ? "---|" : "---:|");
    printf("\n");
}

static void markdown_row(const struct sheet_row *row, const struct widths *w, int n_columns) {
    char text[SHEET_CELL_TEXT];
    printf("| ");
    markdown_text(row->label);
    printf(" |");
    for (int c = 0; c < n_columns; c++) {
        if (w->is_empty[c]) continue;
        cell_show(&row->cells[c], text); /* one that the row lacks is empty */
        printf(" ");
        markdown_text(text);
        printf(" |");
    }
    printf("\n");
}

static void markdown_section(const struct sheet_section *t, bool is_full) {
    const struct widths w = widths_of(t, is_full);
    bool is_table = false; /* the last row was one of a table */
    if (t->title) printf("## %c%s\n", text_upper(t->title[0]), t->title + 1);
    if (!has_shown(t, is_full, true)) printf("\n");
    for (int i = 0; i < t->n_rows; i++) {
        const struct sheet_row *row = &t->rows[i];
        if (!is_shown(row, is_full)) continue;
        if (row->line) {
            printf("%s- ", is_table ? "\n" : "");
            markdown_text(row->line);
            printf("\n");
        } else {
            if (!is_table) markdown_head(t, &w);
            markdown_row(row, &w, t->n_columns);
        }
        is_table = !row->line;
    }
    printf("\n");
}

void sheet_markdown(const struct sheet *s, bool is_full) {
    for (int i = 0; i < s->n; i++)
        if (has_shown(&s->sections[i], is_full, false)) markdown_section(&s->sections[i], is_full);
}

/* ---- CSV and JSON ---- */

static void csv_field(const char *text, char end) {
    const bool is_quoted = text[strcspn(text, ",\"\r\n")];
    if (is_quoted) putchar('"');
    for (; *text; text++) printf(*text == '"' ? "\"\"" : "%c", *text);
    printf(is_quoted ? "\"%c" : "%c", end);
}

void sheet_csv(const struct sheet *s) {
    printf("section,row,figure,value,unit\n");
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->sections[i].n_rows; k++) {
            const struct sheet_row *row = &s->sections[i].rows[k];
            for (int c = 0; c < row->n_cells; c++) {
                char text[SHEET_CELL_TEXT];
                if (row->cells[c].unit == SHEET_NOTHING) continue;
                csv_field(s->sections[i].name, ',');
                csv_field(row->name, ',');
                column_name(&s->sections[i], c, false, text);
                csv_field(text, ',');
                cell_digits(&row->cells[c], text);
                csv_field(text, ',');
                csv_field(unit_name(row->cells[c].unit), '\n');
            }
        }
}

/* Counts are decimal strings, as in a ledger; numbers of things are numbers. */
static json_t *cell_json(const struct sheet_cell *c) {
    char text[SHEET_CELL_TEXT];
    if (c->unit == SHEET_NOTHING) return json_null();
    if (c->unit == SHEET_NUMBER) return json_integer((json_int_t)c->whole);
    if (!is_whole(c->unit) && c->unit != SHEET_TEXT) return json_real(c->real);
    cell_digits(c, text);
    return json_string(text);
}

static json_t *row_json(const struct sheet_section *t, const struct sheet_row *row) {
    char name[SHEET_CELL_TEXT];
    if (row->n_cells == 1) return cell_json(&row->cells[0]);
    json_t *cells = json_object();
    for (int c = 0; c < row->n_cells; c++) {
        column_name(t, c, false, name);
        json_object_set_new(cells, name, cell_json(&row->cells[c]));
    }
    return cells;
}

json_t *sheet_json(const struct sheet *s, const char *section) {
    json_t *rows = json_object();
    for (int i = 0; i < s->n; i++)
        for (int k = 0; !strcmp(s->sections[i].name, section) && k < s->sections[i].n_rows; k++) {
            const struct sheet_row *row = &s->sections[i].rows[k];
            if (!row->line) json_object_set_new(rows, row->name, row_json(&s->sections[i], row));
        }
    return rows;
}
