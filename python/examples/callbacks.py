"""One object for trainers that take callbacks: Hugging Face's Trainer and Lightning.

Hugging Face (transformers.TrainerCallback: on_train_begin(args, state, control, model=, optimizer=, ...),
on_train_end(...)):

    Trainer(model, args, ..., callbacks=[trainer_callback(TrainerCallback, bootstrap="192.0.2.7:7077", out="run")])

Lightning (lightning.pytorch.Callback: on_train_start(trainer, pl_module), on_train_end, on_exception):

    Trainer(callbacks=[lightning_callback(Callback, bootstrap="192.0.2.7:7077", out="run")])

The base class is passed in, so that neither package is needed to import this file. Both are written from the signatures
in their documentation: the packages are not in Debian, so the test runs them with bases and loops of its own.
"""
import grapevine


def plain(optimizer):
    """The optimizer of torch inside what Accelerate and Lightning put around it."""
    while not hasattr(optimizer, "param_groups") or hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def trainer_callback(base, **settings):
    class SwarmCallback(base):
        def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
            self.swarm = grapevine.join(**settings)
            self.swarm.wrap(plain(optimizer), model)

        def on_step_end(self, args, state, control, **kwargs):
            if self.swarm.is_over:  # at the goal that the settings name
                control.should_training_stop = True

        def on_train_end(self, args, state, control, **kwargs):
            self.swarm.leave()

    return SwarmCallback()


def lightning_callback(base, **settings):
    class SwarmCallback(base):
        def on_train_start(self, trainer, pl_module):
            if len(trainer.optimizers) != 1:
                raise grapevine.GrapevineError("lightning: a swarm takes a module with one optimizer")
            self.swarm = grapevine.join(**settings)
            self.swarm.wrap(plain(trainer.optimizers[0]), pl_module)

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if self.swarm.is_over:
                trainer.should_stop = True

        def on_train_end(self, trainer, pl_module):
            self.swarm.leave()

        def on_exception(self, trainer, pl_module, exception):
            self.swarm.close()

    return SwarmCallback()
