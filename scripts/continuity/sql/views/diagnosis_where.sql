-- one trained model: the layer, channel and part of the sequence that depart most by themselves on the finer grid
-- own [sd of the layer] largest departure that a channel makes itself in one part of the sequence
-- times_median [] own / median of own over the listed channels, layers and parts of this model
SELECT system, model, method, seed, arg_max(layer, own) AS layer, arg_max(channel, own) AS channel,
    arg_max(position, own) AS position, max(own) AS own, max(own) / median(own) AS times_median,
    arg_max(departure, own) AS departure, arg_max(delta, own) AS delta,
    arg_max(lipschitz_delta, own) AS lipschitz_delta
FROM diagnosis
WHERE own IS NOT NULL
GROUP BY ALL
ORDER BY ALL
