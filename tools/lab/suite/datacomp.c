#include "lab/suite/suite.h"

#include <string.h>

#define RECALL "mean_per_class_recall"

static const datacomp_set sets[] = {
    { "vtab/caltech101", "Caltech-101", RECALL, DATACOMP_PLAIN, DATACOMP_VTAB },
    { "cifar10", "CIFAR-10", "acc1", DATACOMP_PLAIN, 0 },
    { "vtab/cifar100", "CIFAR-100", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/clevr_count_all", "CLEVR Counts", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/clevr_closest_object_distance", "CLEVR Distance", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "country211", "Country211", "acc1", DATACOMP_PLAIN, 0 },
    { "vtab/dtd", "Describable Textures", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/eurosat", "EuroSAT", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "fgvc_aircraft", "FGVC Aircraft", RECALL, DATACOMP_PLAIN, 0 },
    { "food101", "Food-101", "acc1", DATACOMP_PLAIN, 0 },
    { "gtsrb", "GTSRB", "acc1", DATACOMP_PLAIN, 0 },
    { "imagenet1k", "ImageNet 1k", "acc1", DATACOMP_PLAIN, 0 },
    { "imagenet_sketch", "ImageNet Sketch", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "imagenetv2", "ImageNet v2", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "imagenet-a", "ImageNet-A", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "imagenet-o", "ImageNet-O", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "imagenet-r", "ImageNet-R", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "vtab/kitti_closest_vehicle_distance", "KITTI Vehicle Distance", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "mnist", "MNIST", "acc1", DATACOMP_PLAIN, 0 },
    { "objectnet", "ObjectNet", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "vtab/flowers", "Oxford Flowers-102", RECALL, DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/pets", "Oxford-IIIT Pet", RECALL, DATACOMP_PLAIN, DATACOMP_VTAB },
    { "voc2007", "Pascal VOC 2007", "acc1", DATACOMP_PLAIN, 0 },
    { "vtab/pcam", "PatchCamelyon", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "renderedsst2", "Rendered SST2", "acc1", DATACOMP_PLAIN, 0 },
    { "vtab/resisc45", "RESISC45", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "cars", "Stanford Cars", "acc1", DATACOMP_PLAIN, 0 },
    { "stl10", "STL-10", "acc1", DATACOMP_PLAIN, 0 },
    { "sun397", "SUN397", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/svhn", "SVHN", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "retrieval/flickr_1k_test_image_text_retrieval", "Flickr", "mean_recall@1", DATACOMP_PLAIN, DATACOMP_RETRIEVAL },
    { "retrieval/mscoco_2014_5k_test_image_text_retrieval", "MSCOCO", "mean_recall@1", DATACOMP_PLAIN,
      DATACOMP_RETRIEVAL },
    { "misc/winogavil", "WinoGAViL", "jaccard_score_10-12", DATACOMP_WINOGAVIL, DATACOMP_RETRIEVAL },
    { "wilds/iwildcam", "iWildCam", "F1-macro_all", DATACOMP_IWILDCAM, 0 },
    { "wilds/camelyon17", "Camelyon17", "acc1", DATACOMP_CAMELYON17, 0 },
    { "wilds/fmow", "FMoW", "acc_worst_region", DATACOMP_FMOW, 0 },
    { "fairness/dollar_street", "Dollar Street", "acc_top5_wg", DATACOMP_DOLLAR_STREET, 0 },
    { "fairness/geode", "GeoDE", "acc_wg", DATACOMP_GEODE, 0 },
    { "fairness/fairface", "FairFace", NULL, DATACOMP_FACES, 0 },
    { "fairness/utkface", "UTKFace", NULL, DATACOMP_FACES, 0 },
};

/* Other names that the same data is published under. */
static const char *const also[][2] = {
    { "flickr30k", "retrieval/flickr_1k_test_image_text_retrieval" },
    { "mscoco_captions", "retrieval/mscoco_2014_5k_test_image_text_retrieval" },
    { "imagenet_a", "imagenet-a" },
    { "imagenet_o", "imagenet-o" },
    { "imagenet_r", "imagenet-r" },
};

const datacomp_set *datacomp_at(int i) { return i >= 0 && i < (int)(sizeof sets / sizeof *sets) ? &sets[i] : NULL; }

/* "vtab/cifar100" as a folder spells it, "vtab-cifar100", or its last part alone. */
static bool spells(const char *name, size_t n, const char *key)
{
    const char *slash = strrchr(key, '/'), *last = slash ? slash + 1 : key;
    if (strlen(last) == n && memcmp(name, last, n) == 0) return true;
    if (strlen(key) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (name[i] != (key[i] == '/' ? '-' : key[i])) return false;
    return true;
}

const datacomp_set *datacomp_find(const char *name)
{
    size_t n;
    if (strncmp(name, "wds_", 4) == 0) name += 4;
    n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, "_test") == 0) n -= 5;
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        if (strlen(also[i][0]) == n && memcmp(name, also[i][0], n) == 0) name = also[i][1], n = strlen(name);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (spells(name, n, sets[i].key) || (strlen(sets[i].key) == n && memcmp(name, sets[i].key, n) == 0))
            return &sets[i];
    return NULL;
}
