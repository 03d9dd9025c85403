/* JSON: what is read, what is refused, what is written. */
#include "check.h"

#include "core/json.h"

static cloob_ctx *ctx;

static bool reads(const char *text)
{
    arena a = { 0 };
    json *root;
    bool ok = json_parse(ctx, &a, text, strlen(text), "test", &root) == CLOOB_OK;
    arena_release(&a);
    return ok;
}

static void values_come_back(void)
{
    const char *text = "{\"a\": [1, -2.5e3, true, null], \"b\": {\"c\": \"x\\u00e9\\ud83d\\ude00\\n\"}}";
    arena a = { 0 };
    json *root;
    int64_t n = 0;
    CHECK_OK(ctx, json_parse(ctx, &a, text, strlen(text), "test", &root));
    const json *list = json_get(root, "a");
    CHECK(list && list->count == 4 && json_int(list->child, &n) && n == 1);
    CHECK_NEAR(list->child->next->number, -2500, 0);
    CHECK(!json_int(json_get(root, "b"), &n));
    CHECK_STR(json_string(json_get(json_get(root, "b"), "c")), "x\xC3\xA9\xF0\x9F\x98\x80\n");
    arena_release(&a);
}

static void malformed_text_is_refused(void)
{
    static const char *const bad[] = { "",      "{",         "[1,]",        "{\"a\":1,}",        "01",
                                       "1.",    "1e",        "\"\\x\"",     "\"\x01\"",          "nul",
                                       "[1 2]", "{\"a\" 1}", "{a:1}",       "\"\\ud800\"",       "\"\xFF\"",
                                       "1 2",   "\"abc",     "\"\\u0000\"", "{\"a\":1,\"a\":2}", "-" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (reads(bad[i])) printf("  accepted: %s\n", bad[i]);
        CHECK(!reads(bad[i]));
    }
    char deep[300];
    memset(deep, '[', sizeof deep);
    deep[299] = '\0';
    CHECK(!reads(deep));
}

/* Long runs are copied eight characters at a time: what is special is seen in every place. */
/* A file of values of two bytes each would take 64 times its size in memory. */
static void number_of_values_is_limited(void)
{
    const size_t n = 2 * (size_t)JSON_MAX_VALUES + 2;
    char *text = malloc(n + 1);
    for (size_t i = 0; i < n; i++) text[i] = i % 2 ? '0' : ',';
    text[0] = '[', text[n - 2] = ']', text[n - 1] = ' ', text[n] = '\0';
    CHECK(!reads(text));
    CHECK(strstr(cloob_error(ctx), "too many values"));
    free(text);
}

static void special_characters_are_seen_anywhere(void)
{
    static const struct {
        const char *written;
        bool good;
    } special[] = { { "\\n", true },   { "\\\\", true },  { "\\\"", true }, { "\xC3\xA4", true }, { "\x01", false },
                    { "\x1F", false }, { "\xFF", false }, { "\x7F", true }, { " ", true },        { "\\q", false } };
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        for (int before = 0; before < 20; before++) {
            char text[64];
            snprintf(text, sizeof text, "\"%.*s%s%.*s\"", before, "aB9+/=zZaB9+/=zZ!#~^", special[i].written,
                     before % 9, "0123456789");
            CHECK(reads(text) == special[i].good);
        }
}

static void errors_say_where(void)
{
    CHECK(!reads("{\n  \"a\": x}"));
    CHECK(strstr(cloob_error(ctx), "line 2, column 8") != NULL);
}

static void members_are_on_lines_down_to_a_depth(void)
{
    sbuf s = { 0 };
    sbuf_puts(&s, "x ");
    json_out w = json_out_on(&s);
    CHECK(!s.data && !s.len);
    w.spaced = true, w.lines = 2;
    json_begin(&w, NULL, '{');
    json_begin(&w, "a", '{');
    json_begin(&w, "b", '[');
    json_put_int(&w, NULL, 1);
    json_put_int(&w, NULL, 2);
    json_end(&w);
    json_put_text(&w, "c", NULL);
    json_end(&w);
    json_put_bool(&w, "d", true);
    json_end(&w);
    json_out_back(&w, &s);
    CHECK_STR(s.data, "x {\n  \"a\": {\n    \"b\": [1, 2],\n    \"c\": null\n  },\n  \"d\": true\n}");
    CHECK(!w.data && !w.len);
    sbuf_release(&s);
}

static void numbers_and_strings_survive_a_round_trip(void)
{
    sbuf s = { 0 };
    json_print_number(&s, 0.1);
    sbuf_putc(&s, ' ');
    json_print_number(&s, 1.0 / 3.0);
    sbuf_putc(&s, ' ');
    json_print_number(&s, NAN);
    CHECK_STR(s.data, "0.1 0.3333333333333333 null");
    sbuf_release(&s);
    json_print_string(&s, "a\"\\\n\x01\xFF");
    CHECK_STR(s.data, "\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBD\"");
    sbuf_release(&s);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(values_come_back);
    RUN(malformed_text_is_refused);
    RUN(number_of_values_is_limited);
    RUN(special_characters_are_seen_anywhere);
    RUN(errors_say_where);
    RUN(members_are_on_lines_down_to_a_depth);
    RUN(numbers_and_strings_survive_a_round_trip);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
