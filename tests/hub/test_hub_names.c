/* Names of models, the hub's lists of files as they come from elsewhere, and the hashes that name content. */
#include "check.h"

#include <unistd.h>

#include "core/file.h"
#include "core/hash.h"
#include "hub/hub.h"

static cloob_ctx *ctx;

/* "" when it is no name; else "repository@revision". */
static const char *meaning(const char *text)
{
    static char out[400];
    hub_name n;
    out[0] = '\0';
    if (hub_name_parse(text, &n)) snprintf(out, sizeof out, "%s@%s", n.repo, n.revision);
    return out;
}

static void names_resolve_to_repositories(void)
{
    static const char laion[] = "laion/CLIP-ViT-B-32-laion2B-s34B-b79K@main";
    CHECK_STR(meaning("hf:org/name"), "org/name@main");
    CHECK_STR(meaning("hf-hub:org/name@v1.0"), "org/name@v1.0");
    CHECK_STR(meaning("hf:org/na.me_x-1@refs/pr/3"), "org/na.me_x-1@refs/pr/3");
    CHECK_STR(meaning("ViT-B-32/laion2b_s34b_b79k"), laion);
    CHECK_STR(meaning("ViT-B-32__laion2b-s34b-b79k"), laion);
    CHECK_STR(meaning("vit-b-32__LAION2B_s34b-b79k"), laion);
    CHECK_STR(meaning("laion-vit-b-32"), laion);
    CHECK_STR(meaning("ViT-H-14-378-quickgelu__dfn5b"), "apple/DFN5B-CLIP-ViT-H-14-378@main");
    CHECK_STR(meaning("xlm-roberta-large-ViT-H-14/frozen_laion5b_s13b_b90k"),
              "laion/CLIP-ViT-H-14-frozen-xlm-roberta-large-laion5B-s13B-b90k@main");
}

static void other_texts_are_no_names(void)
{
    static const char *const none[] = { "",
                                        "hf:",
                                        "hf:name",
                                        "hf:/name",
                                        "hf:org/",
                                        "hf:org/name/more",
                                        "hf:../name",
                                        "hf:org/..",
                                        "hf:.org/name",
                                        "hf:org/name@",
                                        "hf:org/name@../x",
                                        "hf:org/name@/x",
                                        "hf:org/name@a\nb",
                                        "hf:org/n ame",
                                        "hf:org/na--me",
                                        "hf:org/-name",
                                        "hf:org/name?x",
                                        "org/name",
                                        "clip.safetensors",
                                        "models/clip",
                                        "ViT-B-32",
                                        "ViT-B-32/",
                                        "ViT-B-32/laion2b",
                                        "ViT-B-32-quickgelu/laion2b_s34b_b79k",
                                        "/openai",
                                        "__openai",
                                        "HF:org/name" };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) CHECK_STR(meaning(none[i]), "");
    char text[400] = "hf:org/";
    memset(text + 7, 'a', 300);
    CHECK_STR(meaning(text), "");
    memset(text + 7 + 96, 0, 10);
    CHECK(*meaning(text));
}

static void openai_files_have_names(void)
{
    hub_name n;
    CHECK(hub_name_parse("ViT-L-14-336-quickgelu/openai", &n));
    CHECK_STR(n.clip_file, "ViT-L-14-336px.pt");
    CHECK(hub_name_parse("RN50x4__openai", &n));
    CHECK_STR(n.clip_file, "RN50x4.pt");
    CHECK(hub_name_parse("ViT-B-32/laion400m_e32", &n));
    CHECK_STR(n.clip_file, "");
}

/* Every row of both tables is a repository, and is found by its own name. */
static void tables_are_sound(void)
{
    int64_t count;
    hub_name n;
    const hub_model *m = hub_models(&count);
    for (int64_t i = 0; i < count; i++) {
        CHECK(hub_name_parse(m[i].name, &n) && strcmp(n.repo, m[i].repo) == 0);
        CHECK(m[i].megabytes > 0 && strlen(m[i].good_at) <= 52 && *m[i].licence);
    }
#define ROW(name, to)                                                                                                  \
    CHECK(hub_name_parse(name, &n) && strcmp(n.repo, to) == 0);                                                        \
    CHECK(hub_name_parse("hf:" to, &n));
#define QUICK(name, to) ROW(name, to)
#include "hub/open_clip.def"
}

static void paths_stay_in_their_folder(void)
{
    static const char *const good[] = { "a", "a.b", "a/b", "..a", "a..", ".a", "a b" };
    static const char *const bad[] = { "",       "/a",   "a/",  "a//b", "..",   ".",
                                       "a/../b", "../a", "a/.", "a\\b", "a\nb", "\x7f" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) CHECK(hub_path_is_safe(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!hub_path_is_safe(bad[i]));
}

/* ---- lists of files ------------------------------------------------------------------------------ */

#define SHA1   "0123456789abcdef0123456789abcdef01234567"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char page[] = "[{\"type\":\"directory\",\"oid\":\"" SHA1 "\",\"size\":0,\"path\":\"onnx\"},"
                           "{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":12,\"path\":\"config.json\"},"
                           "{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":130,\"lfs\":{\"oid\":\"" SHA256
                           "\",\"size\":900,\"pointerSize\":1},"
                           "\"path\":\"model.safetensors\"},"
                           "{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":5,\"path\":\"onnx/model.onnx\"},"
                           "{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":5,\"path\":\"../x.safetensors\"},"
                           "{\"type\":\"file\",\"oid\":\"../" SHA1 "\",\"size\":5,\"path\":\"merges.txt\"},"
                           "{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":-5,\"path\":\"vocab.json\"},"
                           "{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":7,\"path\":\"config.json\"}]";

static void listings_are_read(void)
{
    hub_listing l = { 0 };
    CHECK_OK(ctx, hub_listing_add(ctx, &l, page, sizeof page - 1));
    CHECK(l.count == 2);
    const hub_file *f = hub_listing_find(&l, "model.safetensors"), *c = hub_listing_find(&l, "config.json");
    CHECK(f && f->bytes == 900 && strcmp(f->etag, SHA256) == 0);
    CHECK(c && c->bytes == 12 && strcmp(c->etag, SHA1) == 0);
    CHECK(hub_listing_add(ctx, &l, "{}", 2) == CLOOB_ERR_FORMAT);
    CHECK(hub_listing_add(ctx, &l, "", 0) == CLOOB_ERR_FORMAT);
    hub_listing_release(&l);
}

/* A page with a byte changed, removed or cut off: nothing that is listed may leave its folder. */
static void damaged_listings_are_harmless(void)
{
    char text[sizeof page];
    uint32_t random = 1;
    for (int i = 0; i < 20000; i++) {
        size_t n = sizeof page - 1;
        memcpy(text, page, n);
        for (int k = 0; k < 3; k++) {
            random = random * 1664525u + 1013904223u;
            text[(random >> 8) % n] = "\"\\/.{}[]:,0a\n-"[(random >> 4) % 14];
        }
        if (i % 4 == 0) n = random % n;
        hub_listing l = { 0 };
        (void)hub_listing_add(ctx, &l, text, n);
        for (int64_t f = 0; f < l.count; f++) {
            size_t digits = strlen(l.file[f].etag);
            CHECK(hub_path_is_safe(l.file[f].name) && !strchr(l.file[f].name, '/') && l.file[f].bytes >= 0);
            CHECK((digits == 40 || digits == 64) && hub_is_hex(l.file[f].etag, digits));
        }
        hub_listing_release(&l);
    }
}

static bool among(const void *folder, const char *name)
{
    const char *const *names = folder;
    for (; *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

static void safetensors_come_first(void)
{
    char out[256];
    static const char *const both[] = { "pytorch_model.bin", "model.safetensors", "open_clip_pytorch_model.bin", NULL };
    static const char *const shards[] = { "pytorch_model.bin", "model.safetensors.index.json", NULL };
    static const char *const own[] = { "clip.safetensors", NULL };
    hub_choose_weights(among, both, out);
    CHECK_STR(out, "model.safetensors");
    hub_choose_weights(among, shards, out);
    CHECK_STR(out, "model.safetensors.index.json");
    CHECK(hub_is_index(out));
    hub_choose_weights(among, own, out);
    CHECK_STR(out, "");
}

static void shards_stay_in_their_folder(void)
{
    char path[] = "/tmp/cloob-index-XXXXXX";
    hub_names n;
    int fd = mkstemp(path);
    static const char good[] =
        "{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"2.safetensors\", \"c\": \"1.safetensors\"}}";
    static const char *const bad[] = { "{}",
                                       "{\"weight_map\": {}}",
                                       "{\"weight_map\": {\"a\": \"../x\"}}",
                                       "{\"weight_map\": {\"a\": \"/x\"}}",
                                       "{\"weight_map\": {\"a\": 1}}",
                                       "{" };
    CHECK(fd >= 0);
    CHECK_OK(ctx, file_write(ctx, path, good, sizeof good - 1));
    CHECK_OK(ctx, hub_index_shards(ctx, path, &n));
    CHECK(n.count == 2 && strcmp(n.name[1], "2.safetensors") == 0);
    hub_names_release(&n);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_OK(ctx, file_write(ctx, path, bad[i], strlen(bad[i])));
        CHECK(hub_index_shards(ctx, path, &n) == CLOOB_ERR_FORMAT && !n.name);
    }
    close(fd);
    unlink(path);
}

/* ---- hashes: vectors of FIPS 180-4, then pieces of every size ------------------------------------- */

static const char *digest(sha_kind kind, const char *data, size_t size, size_t piece)
{
    static char hex[SHA_HEX];
    sha s;
    sha_begin(&s, kind);
    for (size_t at = 0; at < size; at += piece) sha_add(&s, data + at, size - at < piece ? size - at : piece);
    sha_end(&s, hex);
    return hex;
}

static void hashes_are_the_standard(void)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static char million[1000000];
    memset(million, 'a', sizeof million);
    CHECK_STR(digest(SHA_1, "abc", 3, 1), "a9993e364706816aba3e25717850c26c9cd0d89d");
    CHECK_STR(digest(SHA_1, two, 56, 7), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    CHECK_STR(digest(SHA_1, million, sizeof million, 1001), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    CHECK_STR(digest(SHA_256, "", 0, 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK_STR(digest(SHA_256, "abc", 3, 2), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK_STR(digest(SHA_256, two, 56, 64), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK_STR(digest(SHA_256, million, sizeof million, 999),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void paths_have_precedence_over_names(void)
{
    char out[HUB_PATH];
    CHECK_OK(ctx, cloob_hub_path(ctx, "/tmp", true, out, sizeof out));
    CHECK_STR(out, "/tmp");
    CHECK(cloob_hub_path(ctx, "/tmp", true, out, 4) == CLOOB_ERR_ARGUMENT);
    CHECK(cloob_hub_path(ctx, "hf:nobody/nothing-of-this-name", false, out, sizeof out) == CLOOB_ERR_IO);
    CHECK(cloob_hub_path(ctx, "no/such.file", true, out, sizeof out) == CLOOB_ERR_IO);
    CHECK(strstr(cloob_error(ctx), "cloob pull"));
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(names_resolve_to_repositories);
    RUN(other_texts_are_no_names);
    RUN(openai_files_have_names);
    RUN(tables_are_sound);
    RUN(paths_stay_in_their_folder);
    RUN(listings_are_read);
    RUN(damaged_listings_are_harmless);
    RUN(safetensors_come_first);
    RUN(shards_stay_in_their_folder);
    RUN(hashes_are_the_standard);
    RUN(paths_have_precedence_over_names);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
