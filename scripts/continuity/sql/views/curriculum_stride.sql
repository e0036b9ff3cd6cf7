-- one task, model and stride: what an epoch costs, against its share of the steps
-- seconds [s] training time of an epoch, median over plans, seeds and epochs
-- cost [] the same over that of stride 1
-- fixed [s] part of an epoch's time that does not fall with the number of steps: intercept of seconds over 1/stride
-- excess [] (seconds - fixed) x stride over the same at stride 1: 1 where the rest falls as the number of steps does
-- n_epochs [] epochs measured
WITH epoch AS (
    SELECT task, model, stride, median(seconds) AS seconds, count(*) AS n_epochs
    FROM curriculum JOIN curriculum_times USING (task, model, plan, seed, epoch)
    WHERE accuracy IS NOT NULL
    GROUP BY ALL
), line AS (
    SELECT task, model, greatest(0, nullif(regr_intercept(seconds, 1 / stride), 'nan')) AS fixed FROM epoch GROUP BY ALL
)
SELECT e.task, e.model, e.stride, e.seconds, e.seconds / whole.seconds AS cost, fixed,
    e.stride * (e.seconds - fixed) / nullif(whole.seconds - fixed, 0) AS excess, e.n_epochs
FROM epoch AS e JOIN line USING (task, model)
LEFT JOIN epoch AS whole ON (whole.task, whole.model, whole.stride) = (e.task, e.model, 1)
ORDER BY ALL
