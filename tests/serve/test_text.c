/* Hosts and ports as headers have them: the whole text counts, not its beginning. */
#include "check.h"

#include "serve/text.h"

static bool reads(const char *text, const char *name, int port)
{
    host_port h;
    return host_parse(text, &h) && strcmp(h.name, name) == 0 && h.port == port;
}

static void hosts_and_ports_are_read(void)
{
    CHECK(reads("localhost", "localhost", -1));
    CHECK(reads("LocalHost:8080", "localhost", 8080));
    CHECK(reads("127.0.0.1:0", "127.0.0.1", 0));
    CHECK(reads("[::1]", "::1", -1));
    CHECK(reads("[::1]:65535", "::1", 65535));
    CHECK(reads("[::FFFF:127.0.0.1]:1", "::ffff:127.0.0.1", 1));
    CHECK(reads("::1", "::1", -1)); /* as --host has it */
    CHECK(reads("my-host_1.example", "my-host_1.example", -1));
}

static void other_texts_are_refused(void)
{
    static const char *const wrong[] = { "",
                                         ":80",
                                         "localhost:",
                                         "localhost:80x",
                                         "localhost:65536",
                                         "localhost:-1",
                                         "[::1",
                                         "[]",
                                         "[::1]x",
                                         "[::1].evil.com",
                                         "[localhost]",
                                         "a b",
                                         "a/b",
                                         "user@host",
                                         "localhost:80:",
                                         "1:2:3",
                                         "::1]",
                                         "[::1]:",
                                         "host:4294967376" };
    host_port h;
    char long_name[HOST_NAME + 2];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (host_parse(wrong[i], &h)) printf("  %s was accepted\n", wrong[i]);
        CHECK(!host_parse(wrong[i], &h));
    }
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    CHECK(!host_parse(long_name, &h));
    long_name[HOST_NAME - 1] = 0;
    CHECK(host_parse(long_name, &h));
}

static bool loopback(const char *text)
{
    host_port h;
    return host_parse(text, &h) && host_is_loopback(&h);
}

static void loopback_is_the_whole_name(void)
{
    static const char *const ours[] = { "localhost", "LOCALHOST:80", "127.0.0.1", "127.255.1.2:9",
                                        "[::1]",     "::1",          "[::1]:80" };
    static const char *const others[] = { "localhost.evil.com",
                                          "127.0.0.1.evil.com",
                                          "[::1].evil.com",
                                          "127.evil.com",
                                          "localhosts",
                                          "0.0.0.0",
                                          "128.0.0.1",
                                          "[::2]",
                                          "::",
                                          "127.0.0.256",
                                          "1270.0.0.1",
                                          "evil.com:127" };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) CHECK(loopback(ours[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) CHECK(!loopback(others[i]));
}

static void model_names_match_across_projects(void)
{
    CHECK(model_name_same("ViT-B-32/laion2b_s34b_b79k", "ViT-B-32__laion2b-s34b-b79k"));
    CHECK(model_name_same("clip", "clip:latest") && model_name_same("CLIP:latest", "clip") && model_name_same("", ""));
    CHECK(!model_name_same("ViT-B-32__openai", "ViT-B-16__openai") && !model_name_same("clip", "clip2"));
    CHECK(!model_name_same("clip", "clip:1") && !model_name_same("clip", "cli") && !model_name_same("", "a"));
}

int main(void)
{
    RUN(hosts_and_ports_are_read);
    RUN(other_texts_are_refused);
    RUN(loopback_is_the_whole_name);
    RUN(model_names_match_across_projects);
    return check_summary();
}
