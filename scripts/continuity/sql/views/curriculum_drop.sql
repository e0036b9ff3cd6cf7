-- one refinement of one task, model and plan: accuracy just before and just after it, with the same weights
-- to_stride [steps] stride after the refinement
-- before [] test accuracy at the stage's stride, mean over seeds
-- after [] test accuracy of the same weights at the next stride, mean over seeds
-- drop [] before less after, mean over seeds
-- low [] lower end of the 95 % t interval of drop; residual variance pooled within a task and model
-- high [] upper end of the 95 % t interval of drop
-- predicted [sd of the output] kappa times the change of delta, of the untrained network; geometric mean over seeds
-- drift [sd of the output] rms change of the outputs that was measured; geometric mean over seeds
-- n_seeds [] runs averaged
WITH refined AS (
    SELECT task, model, plan, seed, stage, stride, accuracy_stage, accuracy_next, predicted, drift,
        lead(stride) OVER (PARTITION BY task, model, plan, seed ORDER BY epoch) AS to_stride
    FROM curriculum
    QUALIFY accuracy_next IS NOT NULL AND stride <> to_stride
), residual AS (
    SELECT task, model, accuracy_stage - accuracy_next - avg(accuracy_stage - accuracy_next) OVER w AS r,
        1 - 1 / count(*) OVER w AS share
    FROM refined WINDOW w AS (PARTITION BY task, model, plan, stage, stride, to_stride)
), pooled AS (
    SELECT task, model, sum(r ** 2) / nullif(sum(share), 0) AS variance, round(sum(share)) AS df FROM residual GROUP BY ALL
), cell AS (
    SELECT task, model, plan, stage, stride, to_stride, avg(accuracy_stage) AS before, avg(accuracy_next) AS after,
        exp(avg(ln(predicted)) FILTER (predicted > 0)) AS predicted, exp(avg(ln(drift)) FILTER (drift > 0)) AS drift,
        count(*) AS n_seeds
    FROM refined GROUP BY ALL
)
SELECT task, model, plan, stage, stride, to_stride, before, after, before - after AS drop,
    before - after - t * sqrt(variance / n_seeds) AS low, before - after + t * sqrt(variance / n_seeds) AS high,
    predicted, drift, n_seeds
FROM cell JOIN pooled USING (task, model) LEFT JOIN t_quantiles ON t_quantiles.df = least(pooled.df, 1000)
ORDER BY ALL
