/* The pickle reader: values by hand, and everything it must refuse. */
#include "check.h"

#include "core/sbuf.h"
#include "io/torch/pickle.h"

static cloob_ctx *ctx;
static arena a;
static pk_result got;

static bool reads_n(const void *bytes, size_t n)
{
    arena_release(&a);
    return pickle_read(ctx, &a, bytes, n, "test", false, &got) == CLOOB_OK;
}
#define READS(literal) reads_n(literal, sizeof(literal) - 1)

/* The bytes are refused, and the line names the reason. */
#define REFUSES(literal, word)                                                                                         \
    do {                                                                                                               \
        CHECK(!READS(literal));                                                                                        \
        if (!strstr(cloob_error(ctx), word)) printf("  said: %s\n", cloob_error(ctx));                                 \
        CHECK(strstr(cloob_error(ctx), word) != NULL);                                                                 \
    } while (0)

static void numbers(void)
{
    CHECK(READS("G\x3f\xf8\0\0\0\0\0\0.") && got.root->real == 1.5);
    CHECK(READS("J\xfe\xff\xff\xff.") && got.root->integer == -2);
    CHECK(READS("K\xfe.") && got.root->integer == 254);
    CHECK(READS("M\x01\x02.") && got.root->integer == 513);
    CHECK(READS("\x80\x02\x8a\x02\x00\xff.") && got.root->integer == -256);
    CHECK(READS("\x80\x02\x8a\x00.") && got.root->integer == 0);
    CHECK(READS("\x80\x02\x8a\x09\1\1\1\1\1\1\1\1\1.") && got.root->kind == PK_BYTES && got.root->integer == 9);
    CHECK(READS("N.") && got.root->kind == PK_NONE && got.used == 2);
    CHECK(READS("\x88.") && got.root->kind == PK_BOOL);
}

static void texts(void)
{
    CHECK(READS("X\x03\0\0\0abc.") && strcmp(pk_text(got.root), "abc") == 0);
    CHECK(READS("U\x03"
                "abc.") &&
          strcmp(pk_text(got.root), "abc") == 0);
    CHECK(READS("\x80\x04\x95\x07\0\0\0\0\0\0\0\x8c\x03"
                "abc\x94.") &&
          strcmp(pk_text(got.root), "abc") == 0);
    CHECK(READS("C\x02\0\1.") && got.root->kind == PK_BYTES && got.root->integer == 2 && !pk_text(got.root));
    CHECK(READS("X\x03\0\0\0a\0c.") && !pk_text(got.root)); /* a zero inside: no text for us */
}

static void containers(void)
{
    int64_t n;
    CHECK(READS("]q\0(K\1K\2K\3e.") && got.root->count == 3 && got.root->item[2]->integer == 3);
    CHECK(READS("K\1K\2\x86.") && got.root->kind == PK_TUPLE && got.root->item[1]->integer == 2);
    CHECK(READS("}(U\1aK\1U\1bK\2u.") && got.root->kind == PK_DICT && got.root->count == 2);
    CHECK(pk_int(pk_get(got.root, "b"), &n) && n == 2 && !pk_get(got.root, "c"));
    CHECK(READS("}U\1aK\1sU\1aK\2s.") && pk_int(pk_get(got.root, "a"), &n) && n == 2); /* the last one counts */
    CHECK(READS("ccollections\nOrderedDict\n)R(U\1aK\1u}U\1xK\1sb.") && got.root->kind == PK_DICT &&
          got.root->count == 1);
    CHECK(READS("ccollections\nOrderedDict\n(](U\1aK\1tatR.") && pk_int(pk_get(got.root, "a"), &n) && n == 1);
    CHECK(READS("]q\0h\0a.") && got.root->item[0] == got.root); /* a list in itself */
    CHECK(READS("\x80\x04\x8f(K\1K\2\x90.") && got.root->count == 2);
}

#define STORAGE "(U\7storagectorch\nFloatStorage\nU\1kU\3cpuK\6tQ"

static void tensors(void)
{
    CHECK(READS("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE "K\1(K\2K\3t(K\3K\1t\x89"
                "NtR."));
    CHECK(got.root->kind == PK_TENSOR && got.root->tensor->ndim == 2 && got.root->tensor->dim[1] == 3);
    CHECK(got.root->tensor->offset == 1 && got.root->tensor->stride[0] == 3 && got.root->tensor->storage->count == 6);
    CHECK(got.storages && strcmp(got.storages->key, "k") == 0 && !got.storages->next);
    CHECK(READS("ctorch._utils\n_rebuild_parameter\n(ctorch._utils\n_rebuild_tensor\n(" STORAGE "K\0))tR\x88"
                "NtR."));
    CHECK(got.root->kind == PK_TENSOR && got.root->tensor->ndim == 0);
    REFUSES("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE "K\1(K\2J\xff\xff\xff\xfft(K\3K\1t\x89"
            "NtR.",
            "negative");
    REFUSES("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE "K\1(K\2t(K\3K\1t\x89"
            "NtR.",
            "impossible");
    REFUSES("ctorch._utils\n_rebuild_tensor_v2\n(K\1K\1)).", "one value");
    REFUSES("ctorch._utils\n_rebuild_tensor_v2\n(K\1K\1))tR.", "without a storage");
    REFUSES("(U\7storagectorch\nTensor\nU\1kU\3cpuK\6tQ.", "no known type");
    REFUSES("(U\6modulectorch\nFloatStorage\nU\1kU\3cpuK\6tQ.", "no storage");
    REFUSES("(U\7storagectorch\nFloatStorage\nU\1kU\3cpuJ\xff\xff\xff\xfftQ.", "sound key");
}

static void names_outside_the_list_are_refused(void)
{
    REFUSES("cos\nsystem\n(U\2lstR.", "os.system");
    REFUSES("cposix\nsystem\n.", "posix.system");
    REFUSES("\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system");
    REFUSES("cbuiltins\neval\n.", "builtins.eval");
    REFUSES("c__builtin__\ngetattr\n.", "getattr");
    REFUSES("cbuiltins\nobject\n)R.", "calls builtins.object");
    REFUSES("ctorch\nfloat32\n)R.", "calls torch.float32");
    REFUSES("ctorch.storage\n_load_from_bytes\n.", "_load_from_bytes");
    REFUSES("c__torch__x\nM\n.", "__torch__x");
    REFUSES("cos\x1b[2J\nsystem\n.", "os?[2J"); /* nothing of it moves a cursor */
    REFUSES("\x80\x02\x82\x01.", "not an instruction");
    REFUSES("I42\n.", "not an instruction"); /* protocol 0 */
    REFUSES("(U\2lsios\nsystem\n.", "not an instruction");
}

static void damaged_pickles_are_refused(void)
{
    REFUSES("", "empty");
    REFUSES("N", "cut short");
    REFUSES(".", "something else");
    REFUSES("NN.", "something else");
    REFUSES("(.", "something else");
    REFUSES("t.", "no mark");
    REFUSES("R.", "a call");
    REFUSES("(R.", "a call");
    REFUSES("}(K", "cut short");
    REFUSES("}(K\1u.", "without a value");
    REFUSES("K\1(K\1K\1u.", "no dict");
    REFUSES("h\0.", "nothing remembered");
    REFUSES("q\0.", "nothing to remember");
    REFUSES("Nr\xff\xff\xff\xff.", "memo index");
    REFUSES("X\xff\xff\xff\xff"
            "abc.",
            "cut short");
    REFUSES("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
            "abc.",
            "cut short");
    REFUSES("\x80\x09N.", "protocol");
    REFUSES("K\1K\2b.", "a state");
}

/* One list of pairs, made into a dict again and again: each call is six bytes. */
static void memory_is_bounded_by_the_length(void)
{
    sbuf s = { 0 };
    sbuf_puts(&s, "](");
    for (int i = 0; i < 2000; i++) sbuf_add(&s, "K\1K\1\x86", 5);
    sbuf_add(&s, "e\x85q\2", 4);
    for (int i = 0; i < 20000; i++) sbuf_add(&s, "ccollections\nOrderedDict\nh\2R", 28);
    sbuf_puts(&s, "N.");
    CHECK(!reads_n(s.data, s.len) && strstr(cloob_error(ctx), "more than"));
    sbuf_release(&s);
}

static void depth_costs_nothing(void)
{
    enum { DEEP = 200000 };
    sbuf s = { 0 };
    for (int i = 0; i < DEEP; i++) sbuf_putc(&s, ']');
    for (int i = 0; i < DEEP - 1; i++) sbuf_putc(&s, 'a');
    sbuf_putc(&s, '.');
    CHECK(reads_n(s.data, s.len) && got.root->kind == PK_LIST && got.root->count == 1);
    sbuf_release(&s);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(numbers);
    RUN(texts);
    RUN(containers);
    RUN(tensors);
    RUN(names_outside_the_list_are_refused);
    RUN(damaged_pickles_are_refused);
    RUN(memory_is_bounded_by_the_length);
    RUN(depth_costs_nothing);
    arena_release(&a);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
