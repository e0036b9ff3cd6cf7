-- Training time to an accuracy: every plan over two baselines of plain training, stride 1 throughout (METHODS 28).
-- envelope: the annealed run, of all budgets, that gets there cheapest in most seeds; restarts: plain with as many restarts
-- of the learning rate, at the plan's own epochs where there is such. Plain training is the annealed plan of most epochs.
-- A target is reached when a second evaluation in a row, at every step, is at least as accurate; a run that never does is
-- censored; a target that the most frequent class reaches says nothing. `automatic` names plans that choose their strides, and are no baseline even where they choose 1.
-- Interval: log ratios paired by seed; residual variance pooled over tasks, models and plans at one target and baseline.
WITH line AS (
    SELECT *, stage > lag(stage) OVER by_epoch AND lr >= lag(lr) OVER by_epoch AS rises
    FROM curriculum WINDOW by_epoch AS (PARTITION BY task, model, plan, seed ORDER BY epoch)
), run AS (
    SELECT task, model, plan, seed, max(stride) AS coarsest, count(*) FILTER (rises) AS n_restarts, max(epoch) AS epochs,
        list(stage ORDER BY epoch) AS stages
    FROM line GROUP BY ALL
), chance AS (
    SELECT task, max(majority) AS majority FROM curriculum GROUP BY ALL
), kind AS (
    SELECT task, model, plan, max(coarsest) AS coarsest, max(n_restarts) AS n_restarts, max(epochs) AS epochs,
        arg_min(stages, seed) AS stages, plan IN (FROM automatic) AS chosen
    FROM run GROUP BY ALL
), annealed AS (
    SELECT task, model, plan, epochs FROM kind WHERE coarsest = 1 AND n_restarts = 0 AND NOT chosen
), fine AS (
    SELECT task, model, plan, n_restarts, epochs, stages FROM kind WHERE coarsest = 1 AND NOT chosen
), timed AS (
    SELECT task, model, plan, seed, accuracy, samples, sum(seconds) OVER so_far AS spent, lag(accuracy) OVER so_far AS before
    FROM curriculum JOIN curriculum_times USING (task, model, plan, seed, epoch)
    WHERE accuracy IS NOT NULL
    WINDOW so_far AS (PARTITION BY task, model, plan, seed ORDER BY epoch)
), best AS (
    SELECT task, model, avg(accuracy) AS accuracy
    FROM (
        SELECT task, model, seed, max(accuracy) AS accuracy
        FROM timed JOIN (SELECT task, model, arg_max(plan, (epochs, plan)) AS plan FROM annealed GROUP BY ALL)
            USING (task, model, plan)
        GROUP BY ALL
    )
    GROUP BY ALL
), target AS (
    SELECT best.task, model, coalesce(share * best.accuracy, targets.accuracy) AS target_accuracy,
        CASE WHEN share IS NULL THEN format('{:g} as published', targets.accuracy)
            ELSE format('{:g} % of plain', 100 * share) END AS target
    FROM best JOIN targets ON targets.task IS NULL OR targets.task = best.task
), reached AS (
    SELECT task, model, plan, seed, target, target_accuracy,
        min(spent) FILTER (least(accuracy, before) >= target_accuracy AND before IS NOT NULL) AS spent,
        min(samples) FILTER (least(accuracy, before) >= target_accuracy AND before IS NOT NULL) AS samples
    FROM run JOIN target USING (task, model) LEFT JOIN timed USING (task, model, plan, seed)
    GROUP BY ALL
), budget AS (
    SELECT task, model, target, plan, count(spent) AS n_reached, avg(ln(spent)) AS cost
    FROM reached JOIN annealed USING (task, model, plan) GROUP BY ALL
), compared AS (
    SELECT task, model, plan, target, 'envelope' AS baseline, cheapest AS baseline_plan
    FROM kind JOIN (
        SELECT task, model, target, arg_min(plan, (-n_reached, coalesce(cost, 'inf'), plan)) AS cheapest FROM budget GROUP BY ALL
    ) USING (task, model)
    WHERE (task, model, plan) NOT IN (SELECT (task, model, plan) FROM annealed)
    UNION ALL
    SELECT task, model, kind.plan, target, 'restarts',
        arg_min(fine.plan, (kind.stages <> fine.stages, abs(kind.epochs - fine.epochs), fine.plan))
    FROM kind JOIN target USING (task, model) LEFT JOIN fine USING (task, model, n_restarts)
    WHERE coarsest > 1 OR chosen
    GROUP BY ALL
), pair AS (
    SELECT c.*, p.seed, p.target_accuracy, p.spent, b.spent AS baseline_spent, ln(p.spent / b.spent) AS x,
        ln(p.samples / b.samples) AS x_samples
    FROM compared AS c JOIN reached AS p USING (task, model, plan, target)
    LEFT JOIN reached AS b
        ON (b.task, b.model, b.plan, b.target, b.seed) = (c.task, c.model, c.baseline_plan, c.target, p.seed)
), cell AS (
    SELECT task, model, plan, target, baseline, baseline_plan, target_accuracy, avg(x) AS centre, median(x) AS middle,
        avg(x_samples) AS centre_samples, avg(spent) FILTER (x IS NOT NULL) AS seconds,
        avg(baseline_spent) FILTER (x IS NOT NULL) AS baseline_seconds, count(x) AS n_reached, count(*) AS n_seeds,
        count(spent) AS n_own, count(baseline_spent) AS n_baseline
    FROM pair GROUP BY ALL
), pooled AS (
    SELECT target, baseline, sum(r ** 2) / nullif(sum(df), 0) AS variance, sum(df) AS df
    FROM (
        SELECT target, baseline, x - avg(x) OVER w AS r, 1 - 1 / count(x) OVER w AS df
        FROM pair WHERE x IS NOT NULL WINDOW w AS (PARTITION BY task, model, plan, target, baseline)
    )
    GROUP BY ALL
), shown AS (
    SELECT cell.* REPLACE (
            CASE WHEN NOT idle THEN centre END AS centre, CASE WHEN NOT idle THEN middle END AS middle,
            CASE WHEN NOT idle THEN centre_samples END AS centre_samples
        ), idle
    FROM cell JOIN chance USING (task), LATERAL (SELECT target_accuracy <= coalesce(majority, 0) AS idle)
)
SELECT task, model, plan, target, baseline, target_accuracy, exp(centre) AS ratio,
    exp(centre - t * sqrt(variance / n_reached)) AS low, exp(centre + t * sqrt(variance / n_reached)) AS high,
    exp(middle) AS ratio_median, exp(centre_samples) AS ratio_samples, seconds, baseline_seconds, baseline_plan, n_seeds, n_reached,
    CASE WHEN baseline_plan IS NULL OR idle THEN 'undefined' WHEN n_reached < n_seeds THEN 'censored' ELSE 'ok' END AS status,
    CASE
        WHEN baseline_plan IS NULL THEN 'no plan of stride 1 has as many restarts'
        WHEN idle THEN 'the most frequent class is as accurate'
        WHEN n_reached < n_seeds
            THEN format('reached in {} of {} seeds, by {} in {}', n_own, n_seeds, baseline_plan, n_baseline)
    END AS reason
FROM shown LEFT JOIN pooled USING (target, baseline)
LEFT JOIN t_quantiles ON t_quantiles.df = least(round(pooled.df), 1000)
ORDER BY ALL
