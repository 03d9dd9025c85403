#include "core/shared_object.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { UNTRIED, LOADED, MISSING };
enum { FILES = sizeof((shared_object *)0)->file / sizeof(char *) };

static bool find_functions(void *library, shared_object *o, const char *file)
{
    for (const shared_function *f = o->functions; f->name; f++)
        if (!(*f->to = dlsym(library, f->name))) {
            snprintf(o->failure, sizeof o->failure, "%s has no %s", file, f->name);
            return false;
        }
    return true;
}

/* dlerror's text begins with the file's name in most cases; the name is written once. */
static void note_missing(shared_object *o, const char *file)
{
    const char *why = dlerror();
    size_t n = strlen(file);
    if (why && strncmp(why, file, n) == 0 && why[n] == ':') why += n + 1 + strspn(why + n + 1, " ");
    snprintf(o->failure, sizeof o->failure, "%s cannot be loaded (%s)", file, why ? why : "no reason given");
}

/* If all files fail, the error of the last one is reported. */
static int load(shared_object *o)
{
    for (int i = 0; i < FILES && o->file[i]; i++) {
        void *library = dlopen(o->file[i], RTLD_NOW | RTLD_LOCAL);
        if (library && find_functions(library, o, o->file[i])) {
            o->loaded = o->file[i];
            return LOADED;
        }
        if (!library) note_missing(o, o->file[i]);
        else dlclose(library);
    }
    return MISSING;
}

bool shared_object_is_there(shared_object *o)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int state = __atomic_load_n(&o->state, __ATOMIC_ACQUIRE);
    if (state != UNTRIED) return state == LOADED;
    pthread_mutex_lock(&lock);
    if (o->state == UNTRIED) __atomic_store_n(&o->state, load(o), __ATOMIC_RELEASE);
    state = o->state;
    pthread_mutex_unlock(&lock);
    return state == LOADED;
}

cloob_status shared_object_use(cloob_ctx *ctx, shared_object *o)
{
    if (shared_object_is_there(o)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: install %s", o->failure, o->install);
}

static shared_object *listed;

void shared_object_list(shared_object *o)
{
    shared_object **at = &listed;
    while (*at && strcmp((*at)->file[0], o->file[0]) < 0) at = &(*at)->next;
    o->next = *at;
    *at = o;
}

shared_object *shared_object_first(void) { return listed; }
