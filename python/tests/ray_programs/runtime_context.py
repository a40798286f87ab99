"""Where code runs, with ids as types."""

import ray

ray.init(num_cpus=1, namespace="mine")


@ray.remote
def me():
    context = ray.get_runtime_context()
    return context.get_task_id(), context.job_id, context.get_task_name()


@ray.remote
class Me:
    def ids(self):
        context = ray.get_runtime_context()
        return context.get_actor_id(), context.actor_id, context.get()["actor_id"]


ref = me.options(name="who").remote()
task, job, name = ray.get(ref)
print(task == ref.task_id().hex(), job == ray.get_runtime_context().job_id, name)
print(isinstance(ref.task_id(), ray.TaskID), ref.job_id() == job)
actor = Me.remote()
text, typed, same = ray.get(actor.ids.remote())
print(text == typed.hex(), typed == same == actor._actor_id, isinstance(typed, ray.ActorID))
print("task_id" in ray.get_runtime_context().get(), ray.get_runtime_context().namespace)
# > True True who
# > True True
# > True True True
# > False mine
