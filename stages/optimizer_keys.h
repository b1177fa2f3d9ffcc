// The keys of [optimizer] that an update's formulas use: name, default, range, meaning. An entry
// yields the config key and the fields of OptimizerSpec and UpdateNumbers, also for a GPU's
// compiler.
#pragma once

#define MILLRACE_OPTIMIZER_KEYS(KEY)                                                  \
  KEY(lr, 0.01, 0, 1000, "learning rate")                                             \
  KEY(momentum, 0.0, 0, 1, "sgd, rmsprop")                                            \
  KEY(weight_decay, 0.0, 0, 1, "decoupled in adamw, added to the gradient elsewhere") \
  KEY(beta1, 0.9, 0, 0.9999999, "adam, adamw: decay of the mean")                     \
  KEY(beta2, 0.999, 0, 0.9999999, "adam, adamw: decay of the square")                 \
  KEY(alpha, 0.99, 0, 0.9999999, "rmsprop: decay of the square")                      \
  KEY(eps, 1e-8, 0, 1, "rmsprop, adam, adamw")                                        \
  /* Bounds |mean / sqrt(square)| of each weight, as Sophia does (Liu et al.,         \
     arXiv 2305.14342): else one frame unlike all others moves weights many           \
     steps at once. */                                                                \
  KEY(clip, 0.0, 0, 1000,                                                             \
      "adam, adamw: the most that an update changes a weight, over the rate; 0: no bound")
