/* What the two ways to the objective share: with copies (objective.c), and in place (objective_plan.c). */
#ifndef LOSS_OBJECTIVE_PLAN_H
#define LOSS_OBJECTIVE_PLAN_H

#include "cloob/objective.h"
#include "loss/loss.h"
#include "tensor/device.h"

void objective_loss_options(const cloob_objective_options *o, const device *dev, bool gradients, loss_options *out);
void objective_fill_result(const loss_shape *s, const loss_result *l, cloob_objective_result *r);

#endif
