/* DataComp's evaluation sets: keys, titles, main metrics, and what is special about some. */
#ifndef BENCHMARK_DATACOMP_H
#define BENCHMARK_DATACOMP_H

#include <stdbool.h>
#include <stdint.h>

typedef enum datacomp_protocol {
    DATACOMP_PLAIN,         /* classification, or retrieval */
    DATACOMP_IWILDCAM,      /* means over classes */
    DATACOMP_CAMELYON17,    /* accuracy by slide */
    DATACOMP_FMOW,          /* accuracy by year and region */
    DATACOMP_DOLLAR_STREET, /* top-5 accuracy by income */
    DATACOMP_GEODE,         /* accuracy by region */
    DATACOMP_FACES,         /* race, gender, age and slurs, by race and gender */
    DATACOMP_WINOGAVIL
} datacomp_protocol;

/* Whose means DataComp quotes beside the average of all. */
enum { DATACOMP_SHIFT = 1, DATACOMP_VTAB = 2, DATACOMP_RETRIEVAL = 4 };

typedef struct datacomp_set {
    const char *key, *title, *main_metric; /* main_metric NULL: it has none, and does not count among the 38 */
    datacomp_protocol protocol;
    int groups;
} datacomp_set;

const datacomp_set *datacomp_at(int i); /* NULL behind the last */
/* By the name of a folder: "wds_vtab-cifar100_test", "vtab-cifar100", "cifar100". NULL: not one of them. */
const datacomp_set *datacomp_find(const char *folder_name);

#endif
