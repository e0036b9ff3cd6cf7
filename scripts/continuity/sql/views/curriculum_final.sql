-- one task, model and plan: accuracy after the last epoch, and what training cost
-- accuracy [] mean test accuracy after the last epoch, over seeds
-- low [] lower end of the 95 % t interval of accuracy; residual variance pooled over all cells
-- high [] upper end of the 95 % t interval of accuracy
-- gain [] accuracy less that of plain training, the annealed plan of most epochs; paired by seed
-- gain_low [] lower end of the 95 % t interval of gain; residual variance of the differences pooled over all cells
-- gain_high [] upper end of the 95 % t interval of gain
-- seconds [s] training time of the whole plan, mean over seeds
-- cost [] the same over plain training's, geometric mean over seeds
-- cost_samples [] steps read in training over plain training's
-- n_seeds [] runs averaged
WITH spent AS (
    SELECT task, model, plan, seed, sum(seconds) AS seconds FROM curriculum_times GROUP BY ALL
), run AS (
    SELECT task, model, plan, seed, arg_max(accuracy, epoch) AS accuracy, max(samples) AS samples, max(epoch) AS epochs,
        max(stride) = 1 AND max(stage) = 1 AS annealed
    FROM curriculum GROUP BY ALL HAVING bool_and(status = 'ok')
), plain AS (
    SELECT task, model, arg_max(plan, (epochs, plan)) AS plan FROM run WHERE annealed GROUP BY ALL
), paired AS (
    SELECT r.*, spent.seconds, r.accuracy - p.accuracy AS gain, ln(spent.seconds / q.seconds) AS log_cost,
        r.samples / p.samples AS cost_samples
    FROM run AS r JOIN spent USING (task, model, plan, seed) LEFT JOIN plain USING (task, model)
    LEFT JOIN run AS p ON (p.task, p.model, p.plan, p.seed) = (r.task, r.model, plain.plan, r.seed)
    LEFT JOIN spent AS q ON (q.task, q.model, q.plan, q.seed) = (r.task, r.model, plain.plan, r.seed)
), residual AS (
    SELECT accuracy - avg(accuracy) OVER w AS a, CASE WHEN plan <> base THEN gain - avg(gain) OVER w END AS g,
        1 - 1 / count(*) OVER w AS share
    FROM paired LEFT JOIN (SELECT task, model, plan AS base FROM plain) USING (task, model)
    WINDOW w AS (PARTITION BY task, model, plan)
), pooled AS (
    SELECT sum(a ** 2) / nullif(sum(share), 0) AS variance, round(sum(share)) AS df,
        sum(g ** 2) / nullif(sum(share) FILTER (g IS NOT NULL), 0) AS variance_gain,
        round(sum(share) FILTER (g IS NOT NULL)) AS df_gain
    FROM residual
), cell AS (
    SELECT task, model, plan, avg(accuracy) AS accuracy, avg(gain) AS gain, avg(seconds) AS seconds,
        exp(avg(log_cost)) AS cost, avg(cost_samples) AS cost_samples, count(*) AS n_seeds
    FROM paired GROUP BY ALL
)
SELECT task, model, cell.plan, accuracy, accuracy - a.t * sqrt(variance / n_seeds) AS low,
    accuracy + a.t * sqrt(variance / n_seeds) AS high, gain,
    CASE WHEN cell.plan <> plain.plan THEN gain - g.t * sqrt(variance_gain / n_seeds) END AS gain_low,
    CASE WHEN cell.plan <> plain.plan THEN gain + g.t * sqrt(variance_gain / n_seeds) END AS gain_high,
    seconds, cost, cost_samples, n_seeds
FROM cell CROSS JOIN pooled LEFT JOIN plain USING (task, model)
LEFT JOIN t_quantiles AS a ON a.df = least(pooled.df, 1000) LEFT JOIN t_quantiles AS g ON g.df = least(pooled.df_gain, 1000)
ORDER BY ALL
