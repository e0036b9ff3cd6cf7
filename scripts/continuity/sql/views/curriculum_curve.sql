-- one epoch of one task, model and plan: accuracy against training time, over seeds
-- stage [] stage of the plan, from 1; of the seed that is farthest: an automatic plan may refine at another epoch in each
-- stride [steps] stride of that stage
-- seconds [s] training time so far, mean over seeds
-- samples [steps] steps of all sequences read in training so far, mean over seeds
-- accuracy [] mean test accuracy at every step
-- accuracy_stage [] mean test accuracy at the stage's stride
-- n_seeds [] runs averaged
WITH timed AS (
    SELECT task, model, plan, seed, epoch, stage, stride, samples, accuracy, accuracy_stage,
        sum(seconds) OVER (PARTITION BY task, model, plan, seed ORDER BY epoch) AS seconds
    FROM curriculum JOIN curriculum_times USING (task, model, plan, seed, epoch)
    WHERE accuracy IS NOT NULL
)
SELECT task, model, plan, epoch, max(stage) AS stage, arg_max(stride, stage) AS stride, avg(seconds) AS seconds,
    avg(samples) AS samples, avg(accuracy) AS accuracy, avg(accuracy_stage) AS accuracy_stage, count(*) AS n_seeds
FROM timed GROUP BY ALL
ORDER BY ALL
