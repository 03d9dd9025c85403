/* CSV rows as pandas reads them; the expected fields were made with pandas.read_csv. */
#include "data/sets/csv.h"

#include "check.h"

static cloob_ctx *ctx;

typedef struct text {
    const char *at;
    size_t left, step; /* bytes per read: small ones cut fields apart */
} text;

static cloob_status read_text(void *arg, void *out, size_t n, size_t *got)
{
    text *t = arg;
    *got = t->left < t->step ? t->left : t->step;
    if (*got > n) *got = n;
    memcpy(out, t->at, *got);
    t->at += *got;
    t->left -= *got;
    return CLOOB_OK;
}

/* All fields of all rows: '|' after each field, '\n' after each row. */
static void all_fields(const char *csv, char separator, size_t step, char *out)
{
    csv_reader *r = malloc(sizeof *r);
    csv_row row = { 0 };
    text t = { csv, strlen(csv), step };
    csv_init(r, separator, read_text, &t, "test.csv");
    *out = '\0';
    while (csv_next(ctx, r, &row) == CLOOB_OK && row.count) {
        for (int i = 0; i < row.count; i++) {
            strcat(out, csv_field(&row, i));
            strcat(out, "|");
        }
        strcat(out, "\n");
        csv_row again = { 0 }; /* the row's extent gives the same row again */
        CHECK_OK(ctx, csv_parse_row(ctx, csv + row.offset, (size_t)row.bytes, separator, "again", &again));
        CHECK(again.count == row.count && strcmp(csv_field(&again, 0), csv_field(&row, 0)) == 0);
        csv_row_release(&again);
    }
    csv_row_release(&row);
    free(r);
}

static void check_fields(const char *csv, char separator, const char *want)
{
    char got[1024];
    for (size_t step = 1; step < 40; step += 7) {
        all_fields(csv, separator, step, got);
        CHECK_STR(got, want);
    }
}

static void plain_and_quoted(void)
{
    check_fields("title\tfilepath\na dog\t1.jpg\n", '\t', "title|filepath|\na dog|1.jpg|\n");
    check_fields("a,b\n\"x, y\",2\n\"say \"\"hi\"\"\",3\n", ',', "a|b|\nx, y|2|\nsay \"hi\"|3|\n");
    check_fields("a,b\n\"two\nlines\",2\n", ',', "a|b|\ntwo\nlines|2|\n");
    check_fields("a,b\n\"\",2\n,\n", ',', "a|b|\n|2|\n||\n");
}

static void quotes_in_odd_places(void)
{
    check_fields("a,b\nx\"y,2\n5\" pipe,3\n", ',', "a|b|\nx\"y|2|\n5\" pipe|3|\n"); /* not at the start: a character */
    check_fields("a,b\n\"abc\"def,2\n", ',', "a|b|\nabcdef|2|\n");                  /* text behind the closing quote */
    check_fields("a,b\n\"abc\"d\"e,2\n", ',', "a|b|\nabcd\"e|2|\n");
}

static void line_ends(void)
{
    check_fields("a;b\r\n1;2\r\n3;4", ';', "a|b|\n1|2|\n3|4|\n");
    check_fields("a;b\r1;2\r", ';', "a|b|\n1|2|\n");
    check_fields("\n\na;b\n\n  \n1;2\n\n", ';', "a|b|\n1|2|\n");
    check_fields("\xEF\xBB\xBF"
                 "a;b\n1;2\n",
                 ';', "a|b|\n1|2|\n");
    check_fields("", ';', "");
}

static void open_quote_is_an_error(void)
{
    csv_reader *r = malloc(sizeof *r);
    csv_row row = { 0 };
    text t = { "a,b\nx,\"never closed\n1,2\n", 24, 5 };
    csv_init(r, ',', read_text, &t, "list.csv");
    CHECK_OK(ctx, csv_next(ctx, r, &row));
    CHECK(csv_next(ctx, r, &row) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "list.csv") && strstr(cloob_error(ctx), "line 2"));
    csv_row_release(&row);
    free(r);
}

static cloob_status read_endless(void *arg, void *out, size_t n, size_t *got)
{
    *(int64_t *)arg += (int64_t)n;
    memset(out, 'x', n);
    *got = n;
    return CLOOB_OK;
}

/* A field that never ends is refused at the limit, not when memory is full. */
static void a_row_has_a_limit(void)
{
    static csv_reader r;
    csv_row row = { 0 };
    int64_t read = 0;
    cloob_ctx *c = cloob_ctx_create(NULL);
    csv_init(&r, '\t', read_endless, &read, "endless");
    CHECK(csv_next(c, &r, &row) == CLOOB_ERR_FORMAT && strstr(cloob_error(c), "more than"));
    CHECK(read <= (int64_t)CSV_ROW_LIMIT + 2 * CSV_CHUNK);
    csv_row_release(&row);
    cloob_ctx_destroy(c);
}

static void zero_bytes_become_spaces(void)
{
    csv_row row = { 0 };
    CHECK_OK(ctx, csv_parse_row(ctx, "a\0b,c", 5, ',', "z", &row));
    CHECK(row.count == 2);
    CHECK_STR(csv_field(&row, 0), "a b");
    CHECK(csv_field(&row, 2) == NULL && csv_find(&row, "c") == 1 && csv_find(&row, "d") == -1);
    csv_row_release(&row);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(plain_and_quoted);
    RUN(quotes_in_odd_places);
    RUN(line_ends);
    RUN(open_quote_is_an_error);
    RUN(a_row_has_a_limit);
    RUN(zero_bytes_become_spaces);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
