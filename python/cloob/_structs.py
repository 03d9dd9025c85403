"""The structs and functions of include/cloob that the package uses, for ctypes.

tests/python compares every offset with the C compiler's.
"""
from __future__ import annotations

import ctypes as c
from typing import Any

F32, BF16, F16, F64 = 0, 1, 2, 3  # cloob_dtype
OUTPUTS = {"unit": 0, "raw": 1, "features": 2}  # cloob_output
IMAGE, TEXT = 0, 1  # cloob_side

LogFn = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)
StopFn = c.CFUNCTYPE(c.c_bool, c.c_void_p)
LossFn = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_void_p)
CallbackFn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)

_I, _D, _P, _S, _B, _Z, _N = c.c_int64, c.c_double, c.c_void_p, c.c_char_p, c.c_bool, c.c_size_t, c.c_int


def _struct(name: str, *fields: tuple[str, Any]) -> type[c.Structure]:
    made = type(name, (c.Structure,), {"_fields_": list(fields)})
    STRUCTS[name] = made
    return made


STRUCTS: dict[str, type[c.Structure]] = {}

CtxOptions = _struct(
    "cloob_ctx_options", ("size", _Z), ("threads", _N), ("log", LogFn), ("log_user", _P), ("log_level", _N), ("progress", _P),
    ("progress_user", _P), ("should_stop", StopFn), ("stop_user", _P), ("copy_files", _B))
ModelOptions = _struct(
    "cloob_model_options", ("size", _Z), ("device", _S), ("precision", _S), ("max_pixels", _I), ("photos", _B),
    ("vocab", _S), ("config", _S), ("invariant", _B), ("batch", _I))
ModelFacts = _struct(
    "cloob_model_facts", ("name", c.c_char * 64), ("family", _S), ("activation", _S), ("embed", _I), ("image_size", _I),
    ("context", _I), ("vocab", _I), ("image_features", _I), ("text_features", _I), ("parameters", _I), ("stored", _N),
    ("method", _S), ("run", _S), ("epoch", _I), ("inv_tau", _D), ("scale_hopfield", _D), ("has_tokenizer", _B),
    ("container", _S), ("names", _S), ("device", _S), ("precision", _S))
ImageInput = _struct("cloob_image_input", ("path", _S), ("data", _P), ("bytes", _Z), ("width", _I), ("height", _I))

SearchUpdate = _struct("cloob_search_update", ("images", _I), ("kept", _I), ("embedded", _I), ("bad", _I), ("removed", _I),
                       ("bad_before", _I))
SearchEntries = _struct("cloob_search_entries", ("name", _P), ("row", _P), ("n", _I), ("D", _I), ("model", _P), ("root", _S),
                        ("checkpoint", _S), ("vocab", _S))
SearchHit = _struct("cloob_search_hit", ("path", _P), ("score", c.c_float))

Hopfield = _struct("cloob_hopfield", ("stored", _P), ("count", _I), ("dim", _I), ("beta", _D))
HopfieldOptions = _struct("cloob_hopfield_options", ("size", _Z), ("updates", _N), ("tolerance", _D), ("unit", _B))
ObjectiveOptions = _struct("cloob_objective_options", ("size", _Z), ("method", _N), ("inv_tau", _D), ("scale_hopfield", _D),
                           ("device", _S), ("compute", _N), ("logit_bias", _D))
ObjectiveShape = _struct("cloob_objective_shape", ("n", _I), ("d", _I), ("nu", _I), ("nv", _I), ("dtype", _N), ("gradients", _B))
ObjectiveRows = _struct("cloob_objective_rows", ("x", _P), ("y", _P), ("u", _P), ("v", _P), ("dx", _P), ("dy", _P), ("du", _P),
                        ("dv", _P))
ObjectiveResult = _struct("cloob_objective_result", ("loss", _D), ("image_term", _D), ("text_term", _D), ("dsum_dinv_tau", _D),
                          ("dsum_dscale", _D), ("n", _I), ("d", _I), ("nu", _I), ("nv", _I), ("dsum_dbias", _D))

LossCall = _struct("cloob_loss_call", ("size", _Z), ("step", _I), ("n", _I), ("d", _I), ("x", _P), ("y", _P), ("inv_tau", _D),
                   ("dx", _P), ("dy", _P), ("loss", _D), ("dinv_tau", _D))
TrainStep = _struct("cloob_train_step", ("size", _Z), ("step", _I), ("steps", _I), ("epoch", _I), ("loss", _D), ("image_term", _D),
                    ("text_term", _D), ("grad_norm", _D), ("lr", _D), ("inv_tau", _D), ("skipped", _B))
TrainEpoch = _struct("cloob_train_epoch", ("size", _Z), ("epoch", _I), ("epochs", _I), ("step", _I), ("loss", _D),
                     ("checkpoint", _S), ("metrics", _S))
TrainSummary = _struct(
    "cloob_train_summary", ("run_dir", c.c_char * 1024), ("checkpoint", c.c_char * 1024), ("steps", _I), ("epochs", _I),
    ("skipped_steps", _I), ("bad_samples", _I), ("loss", _D), ("seconds", _D), ("pairs_per_s", _D), ("wait_share", _D),
    ("other_share", _D), ("method", c.c_char * 24), ("rank", _N), ("ranks", _N))


class TrainCallbacks(c.Structure):
    """The first members of cloob_train_options. Settings after them are set by name (cloob_train_options_set)."""

    _fields_ = [("size", _Z), ("should_stop", StopFn), ("stop_user", _P), ("loss", LossFn), ("loss_user", _P), ("on_step", CallbackFn),
                ("step_user", _P), ("on_epoch", CallbackFn), ("epoch_user", _P), ("on_log", CallbackFn), ("log_user", _P)]


Matrix = _struct("cloob_matrix", ("data", _P), ("dtype", _N), ("rows", _I), ("columns", _I), ("name", _S))
RetrievalSide = _struct("cloob_retrieval_side", ("recall1", _D), ("recall5", _D), ("recall10", _D), ("mean_rank", _D),
                        ("median_rank", _D), ("mrr", _D), ("tied", _I))
Retrieval = _struct("cloob_retrieval", ("pairs", _I), ("images", _I), ("texts", _I), ("queries", _I), ("scaled", _I),
                    ("image_to_text", RetrievalSide), ("text_to_image", RetrievalSide))
RetrieveOptions = _struct("cloob_retrieve_options", ("queries", _I), ("text_image", _P))
Split = _struct("cloob_split", ("x", Matrix), ("y", _P), ("class_name", _P), ("classes", _I))
ProbeOptions = _struct("cloob_probe_options", ("size", _Z), ("search", _B), ("lambda", _D), ("max_iterations", _N), ("tolerance", _D),
                       ("refit_all", _B), ("random_half", _B), ("seed", c.c_uint64), ("ties_mean", _B))
ProbeTrial = _struct("cloob_probe_trial", ("lambda", _D), ("objective", _D), ("val_acc", _D), ("iterations", _N), ("converged", _B))
ProbeResult = _struct(
    "cloob_probe_result", ("lambda", _D), ("objective", _D), ("coef_norm", _D), ("iterations", _N), ("evaluations", _N),
    ("converged", _B), ("has_val", _B), ("train_acc", _D), ("val_acc", _D), ("test_acc", _D), ("test_acc5", _D),
    ("test_mean_per_class", _D), ("searched_test_acc", _D), ("trained_rows", _I), ("test_rows", _I), ("dimensions", _I),
    ("classes", _I), ("class_gaps", _I), ("unknown_labels", _I), ("trials", _N), ("trial", ProbeTrial * 32), ("weight", c.POINTER(_D)),
    ("label", c.POINTER(_I)))
EvalOptions = _struct("cloob_eval_options", ("workers", _I), ("retrieve", _S), ("retrieve_from", _S), ("scale_hopfield", _D))
ZeroshotOptions = _struct("cloob_zeroshot_options", ("size", _Z), ("prompts", _P), ("set", _I), ("eval", EvalOptions),
                          ("eval_room", c.c_char * (128 - c.sizeof(EvalOptions))), ("class_map", _S), ("predictions", _B), ("confusion", _B))
ZeroshotClass = _struct("cloob_zeroshot_class", ("name", _S), ("n", _I), ("hit1", _I), ("hit5", _I))
ZeroshotPrediction = _struct("cloob_zeroshot_prediction", ("image", _S), ("label", _I), ("predicted", _I), ("p", _D), ("rank", _I))
ZeroshotResult = _struct(
    "cloob_zeroshot_result", ("top1", _D), ("top5", _D), ("mean_per_class", _D), ("n", _I), ("bad", _I), ("wants_mean_per_class", _B),
    ("row", c.POINTER(ZeroshotClass)), ("classes", _I), ("empty", _I), ("prediction", c.POINTER(ZeroshotPrediction)),
    ("confusion", c.POINTER(_I)))

# ---- functions: result, arguments. _N as the result is a cloob_status.

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "cloob_version": (_S, []),
    "cloob_error": (_S, [_P]),
    "cloob_ctx_options_init_size": (None, [_P, _Z]),
    "cloob_ctx_create": (_P, [_P]),
    "cloob_ctx_destroy": (None, [_P]),
    "cloob_hub_path": (_N, [_P, _S, _B, _P, _Z]),
    "cloob_model_options_init_size": (None, [_P, _Z]),
    "cloob_model_open": (_N, [_P, _S, _P, _P]),
    "cloob_model_close": (None, [_P]),
    "cloob_model_get_facts": (None, [_P, _P]),
    "cloob_model_width": (_I, [_P, _N, _N]),
    "cloob_model_tokenize": (_N, [_P, _P, _P, _I, _P]),
    "cloob_encode_images": (_N, [_P, _P, _P, _I, _N, _P]),
    "cloob_encode_inputs": (_N, [_P, _P, _P, _I, _N, _P, _P]),
    "cloob_model_preprocess": (_N, [_P, _P, _P, _I, _P, _P]),
    "cloob_encode_texts": (_N, [_P, _P, _P, _I, _N, _P]),
    "cloob_encode_image_tensor": (_N, [_P, _P, _P, _I, _N, _P]),
    "cloob_encode_tokens": (_N, [_P, _P, _P, _I, _N, _P]),
    "cloob_tokenizer_open": (_N, [_P, _S, _P]),
    "cloob_tokenizer_close": (None, [_P]),
    "cloob_tokenizer_vocab_size": (c.c_int32, [_P]),
    "cloob_tokenizer_start_id": (c.c_int32, [_P]),
    "cloob_tokenizer_end_id": (c.c_int32, [_P]),
    "cloob_tokenizer_encode": (_N, [_P, _P, _S, _Z, _P, _P]),
    "cloob_tokenizer_encode_rows": (_N, [_P, _P, _P, _I, _I, _P]),
    "cloob_tokenizer_decode": (_N, [_P, _P, _P, _I, _P]),
    "cloob_classifier_create": (_N, [_P, _P, _P, _I, _P, _I, _P]),
    "cloob_classifier_destroy": (None, [_P]),
    "cloob_classify": (_N, [_P, _P, _P, _I, _P]),
    "cloob_search_index": (_N, [_P, _P, _S, _S, _S, _S, _P]),
    "cloob_search_open": (_N, [_P, _S, _P]),
    "cloob_search_close": (None, [_P]),
    "cloob_search_count": (_I, [_P]),
    "cloob_search_width": (_I, [_P]),
    "cloob_search_checkpoint": (_S, [_P]),
    "cloob_search_vocab": (_S, [_P]),
    "cloob_search_root": (_S, [_P]),
    "cloob_search_save": (_N, [_P, _P, _P, _S]),
    "cloob_search_check": (_N, [_P, _P, _P]),
    "cloob_search_query": (_N, [_P, _P, _P, _I, _I, _P, _P]),
    "cloob_search_hits_release": (None, [_P, _I]),
    "cloob_hopfield_options_init_size": (None, [_P, _Z]),
    "cloob_hopfield_retrieve": (_N, [_P, _P, _P, _P, _I, _P, _P]),
    "cloob_hopfield_energy": (_N, [_P, _P, _P, _I, _P]),
    "cloob_objective_options_init_size": (None, [_P, _Z]),
    "cloob_objective_plan_create": (_N, [_P, _P, _P, _P]),
    "cloob_objective_plan_scales": (_N, [_P, _P, _D, _D]),
    "cloob_objective_plan_run": (_N, [_P, _P, _P, _P]),
    "cloob_objective_plan_destroy": (None, [_P]),
    "cloob_train_options_init_size": (None, [_P, _Z]),
    "cloob_train_options_set": (_N, [_P, _P, _S, _S]),
    "cloob_train": (_N, [_P, _P, _P]),
    "cloob_dataset_open": (_N, [_P, _S, _P, _P]),
    "cloob_dataset_close": (None, [_P]),
    "cloob_prompts_parse": (_N, [_P, _S, _Z, _P]),
    "cloob_prompts_close": (None, [_P]),
    "cloob_zeroshot_options_init_size": (None, [_P, _Z]),
    "cloob_zeroshot": (_N, [_P, _P, _P, _P, _P]),
    "cloob_zeroshot_release": (None, [_P]),
    "cloob_retrieve": (_N, [_P, _P, _P, _P, _P]),
    "cloob_probe_options_init_size": (None, [_P, _Z]),
    "cloob_probe": (_N, [_P, _P, _P, _P, _P, _P]),
    "cloob_probe_release": (None, [_P]),
}
